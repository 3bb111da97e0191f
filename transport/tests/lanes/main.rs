//! Agents over every lane: what each lane must do alike, and what is one lane's own. Agents of two hubs are to
//! each other as those of two processes.

mod certificates;
mod devices;
mod encoded;
mod ends;
mod every_lane;
mod faults;
mod integrity;
mod links;
mod networks;
mod nvlink;
mod rails;
mod regions;
mod shm;
mod strangers;
mod tcp;
mod tls;
mod waited;
