//! Pods that come, go and return, with an API server to which nothing happens.

use super::*;

#[tokio::test]
async fn a_pod_is_listed_from_its_start_until_it_is_to_end() {
    let server = ApiServer::start(own_place());
    server.put(starting(worker("a", 1)));
    server.put(worker("b", 2));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("b", 2)]).await;
    server.put(worker("a", 1));
    reader.until(&[("a", 1), ("b", 2)]).await;
    // A worker that drains, and the next pod with its name.
    server.put(terminating(worker("a", 1)));
    reader.until(&[("b", 2)]).await;
    server.delete("a");
    server.put(starting(worker("a", 3)));
    server.put(worker("a", 3));
    reader.until(&[("a", 3), ("b", 2)]).await;
    // One whose node is lost is gone without a word.
    server.delete("b");
    reader.until(&[("a", 3)]).await;
    assert_eq!(reader.counts, [3, 0, 2]);
    assert_eq!(reader.topology("a"), "host=node-a");
    assert!(matches!(reader.known[&Key("a".to_owned())].about, About::Pod { role: Some(_), .. }));
}

#[tokio::test]
async fn what_changes_of_a_pod_without_its_worker_is_no_change() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    let mut unready = worker("a", 1);
    // As by `baton admin drain`: the worker keeps its sessions.
    unready["status"]["containerStatuses"][0]["ready"] = json!(false);
    server.put(unready);
    server.put(worker("a", 1));
    server.put(worker("b", 2));
    reader.until(&[("a", 1), ("b", 2)]).await;
    server.put(worker("a", 9));
    reader.until(&[("a", 9), ("b", 2)]).await;
    // A container that restarts.
    server.put(starting(worker("a", 9)));
    reader.until(&[("b", 2)]).await;
    assert_eq!(reader.counts, [2, 1, 1]);
}

#[tokio::test]
async fn pods_that_are_no_workers_are_left_out() {
    let server = ApiServer::start(own_place());
    let mut portless = worker("a", 1);
    portless["spec"]["containers"][0]["ports"] = Value::Null;
    server.put(portless);
    let mut reader = Reader::open(config(server.address())).await;
    server.put(json!({ "metadata": { "name": "b" } }));
    server.put(worker("c", 3));
    reader.until(&[("c", 3)]).await;
    // It gets a port.
    server.put(worker("a", 1));
    reader.until(&[("a", 1), ("c", 3)]).await;
    assert_eq!(reader.counts, [2, 0, 0]);
}

#[tokio::test]
async fn nodes_say_where_workers_are_if_they_may_be_read() {
    let server = ApiServer::start(own_place());
    let labels = json!({ "topology.kubernetes.io/zone": "z1", "rack": "r7", "nvidia.com/gpu.clique": "c.1" });
    server.state().nodes.insert("node-a".to_owned(), labels);
    server.state().refused.push(("/nodes/", 403));
    let config = KubernetesConfig { node_rack_label: Some("rack".to_owned()), ..config(server.address()) };
    let mut zoned = worker("b", 2);
    zoned["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z2");
    server.put(worker("a", 1));
    server.put(zoned);
    let mut reader = Reader::open(config).await;
    reader.until(&[("a", 1), ("b", 2)]).await;
    assert_eq!(reader.topology("a"), "host=node-a");
    assert_eq!(reader.topology("b"), "host=node-b zone=z2");
    // One question was enough to know.
    assert_eq!(server.count("/nodes/"), 1);
    server.at_once(|state| {
        state.refused.clear();
        state.forgotten = state.version + 1;
        state.end_watches("", true);
    });
    reader.read_until(|reader| reader.counts[1] > 0).await;
    assert_eq!(reader.topology("a"), "host=node-a rack=r7 nvlink_domain=c.1 zone=z1");
    // The node of b does not exist.
    assert_eq!((reader.topology("b").as_str(), reader.counts), ("host=node-b zone=z2", [2, 1, 0]));
}
