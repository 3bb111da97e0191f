//! The service beside the other paths of an operations port.

use crate::CALL_BYTES_MAX;
use crate::cluster::Cluster;
use crate::reach::{Reach, guard};
use crate::service::Service;
use axum::Router;
use axum::middleware::from_fn_with_state;
use proto::admin::{AdminServer, DESCRIPTION, SERVICE_NAME};
use std::sync::Arc;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

/// What `grpc.health.v1` says of the process.
#[derive(Clone, Debug)]
pub struct Health(HealthReporter);

impl Health {
    /// Says whether the process takes work.
    pub async fn set(&self, serves: bool) {
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        // The empty name is that of the process as a whole.
        self.0.set_service_status("", status).await;
    }
}

/// Returns the paths of the service, its reflection and the health of the process, and what to tell that.
///
/// # Panics
/// If the description of the service, which is generated with it, cannot be read.
pub fn routes(cluster: Arc<impl Cluster>, reach: Reach) -> (Router, Health) {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTION)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection_v1 = reflection().build_v1().expect("the description was generated");
    // Many clients, Python's among them, ask by its first name alone.
    let reflection_v1alpha = reflection().build_v1alpha().expect("the description was generated");
    let (reporter, health) = health_reporter();
    let service = AdminServer::new(Service::new(cluster)).max_decoding_message_size(CALL_BYTES_MAX);
    let guarded = Router::new()
        .route_service(&format!("/{SERVICE_NAME}/{{*call}}"), service)
        .route_service("/grpc.reflection.v1.ServerReflection/{*call}", reflection_v1)
        .route_service("/grpc.reflection.v1alpha.ServerReflection/{*call}", reflection_v1alpha)
        // Of these paths alone: those that nobody has are answered by the server of the port.
        .route_layer(from_fn_with_state(reach, guard));
    (guarded.route_service("/grpc.health.v1.Health/{*call}", health), Health(reporter))
}
