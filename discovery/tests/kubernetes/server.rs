//! An API server of the test's own, as far as discovery uses one: pods of one namespace, and labels of nodes.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::spawn;

/// The namespace of all pods.
pub(crate) const NAMESPACE: &str = "baton";

/// One end of a connection, with TLS or without.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// Makes a connection of one that was accepted. None: it is refused.
pub(crate) type Accept = fn(TcpStream) -> Option<Box<dyn Wire>>;

/// An API server; it ends when dropped.
pub(crate) struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// What the server has, and how it behaves.
#[derive(Default)]
pub(crate) struct State {
    /// Connections are closed as they come.
    pub(crate) is_away: bool,
    /// Connections that were closed so.
    pub(crate) turned_away: usize,
    /// The version of the last change.
    pub(crate) version: u64,
    /// Versions up to it are forgotten.
    pub(crate) forgotten: u64,
    /// The token that requests must have.
    pub(crate) token: Option<String>,
    /// Parts of paths, and the status with which requests for them are answered.
    pub(crate) refused: Vec<(&'static str, u16)>,
    /// Labels of nodes.
    pub(crate) nodes: BTreeMap<String, Value>,
    /// The version up to which a watch has told everything.
    pub(crate) told: u64,
    /// Paths and queries of all requests so far.
    pub(crate) asked: Vec<String>,
    pods: BTreeMap<String, Value>,
    events: Vec<(u64, String)>,
    /// Watches that began in an earlier era end with these bytes, and with the end of their body or without.
    era: u64,
    last_words: (String, bool),
}

/// Returns a pod of a worker that takes sessions at `at`, on the node `node-NAME`.
pub(crate) fn pod(name: &str, at: SocketAddr, role: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"), "labels": { "llm-d.ai/role": role } },
        "spec": {
            "nodeName": format!("node-{name}"),
            "containers": [{ "name": "worker", "ports": [{ "name": "sessions", "containerPort": at.port(), "protocol": "TCP" }] }],
        },
        "status": {
            "phase": "Running",
            "podIP": at.ip().to_string(),
            "containerStatuses": [{ "name": "worker", "ready": true, "started": true, "restartCount": 0 }],
        },
    })
}

/// Returns the pod before its worker has loaded its model.
pub(crate) fn starting(mut pod: Value) -> Value {
    pod["status"]["containerStatuses"][0]["started"] = json!(false);
    pod["status"]["containerStatuses"][0]["ready"] = json!(false);
    pod
}

/// Returns the pod when it is about to end.
pub(crate) fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-26T10:00:00Z");
    pod
}

impl ApiServer {
    /// Starts a server at an address that is the caller's alone.
    pub(crate) fn start(address: SocketAddr) -> Self {
        Self::start_with(address, |stream| Some(Box::new(stream)))
    }

    /// The same, with connections as `accept` makes them.
    pub(crate) fn start_with(address: SocketAddr, accept: Accept) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let shared = Arc::new(Shared::default());
        let server = Self { address, shared: shared.clone() };
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                spawn(move || {
                    if shared.lock().turns_away() {
                        return;
                    }
                    if let Some(wire) = accept(stream) {
                        // A client that goes away is no error.
                        let _ = shared.serve(wire);
                    }
                });
            }
        });
        server
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how it behaves.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Changes several things, of which watches see all at once.
    pub(crate) fn at_once(&self, act: impl FnOnce(&mut State)) {
        act(&mut self.state());
        self.shared.changed.notify_all();
    }

    /// Makes a pod, or replaces it.
    pub(crate) fn put(&self, pod: Value) {
        self.at_once(|state| state.put(pod));
    }

    /// Removes a pod.
    pub(crate) fn delete(&self, name: &str) {
        self.at_once(|state| state.delete(name));
    }

    /// Says which version it has, in a bookmark.
    #[allow(dead_code, reason = "not every target that starts a server does this")]
    pub(crate) fn bookmark(&self) {
        self.at_once(|state| {
            state.tell("BOOKMARK", json!({ "kind": "Pod", "apiVersion": "v1", "metadata": {} }));
        });
    }

    /// Ends all watches after these bytes, with the end of their bodies or as a connection that breaks.
    pub(crate) fn end_watches(&self, last_words: &str, is_clean: bool) {
        self.at_once(|state| state.end_watches(last_words, is_clean));
    }

    /// Breaks all connections, and those that come until [`Self::return_again`].
    pub(crate) fn go_away(&self) {
        self.state().is_away = true;
        self.end_watches("", false);
    }

    pub(crate) fn return_again(&self) {
        self.state().is_away = false;
    }

    /// How many requests so far contain `part`, such as `watch=true`.
    #[allow(dead_code, reason = "not every target that starts a server does this")]
    pub(crate) fn count(&self, part: &str) -> usize {
        self.state().asked.iter().filter(|asked| asked.contains(part)).count()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.go_away();
    }
}

impl State {
    fn turns_away(&mut self) -> bool {
        self.turned_away += usize::from(self.is_away);
        self.is_away
    }

    pub(crate) fn delete(&mut self, name: &str) {
        let pod = self.pods.remove(name).expect("it is there");
        self.tell("DELETED", pod);
    }

    pub(crate) fn end_watches(&mut self, last_words: &str, is_clean: bool) {
        self.era += 1;
        self.last_words = (last_words.to_owned(), is_clean);
    }

    pub(crate) fn put(&mut self, pod: Value) {
        let name = pod["metadata"]["name"].as_str().expect("it has one").to_owned();
        let what = if self.pods.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        let pod = self.tell(what, pod);
        self.pods.insert(name, pod);
    }

    /// Notes a change for watches. Returns the object with its version.
    fn tell(&mut self, what: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.events.push((self.version, json!({ "type": what, "object": object }).to_string()));
        object
    }

    /// Loses all pods and versions, as a server whose store was emptied.
    #[allow(dead_code, reason = "not every target that starts a server does this")]
    pub(crate) fn wipe(&mut self) {
        (self.version, self.forgotten) = (0, 0);
        self.pods.clear();
        self.events.clear();
    }

    fn page(&self, query: &BTreeMap<&str, &str>) -> Value {
        let from = query.get("continue").map_or(String::new(), |from| from.replace("%2D", "-"));
        let limit: usize = query["limit"].parse().expect("a number");
        let pods: Vec<&Value> = self.pods.range(from..).map(|(_, pod)| pod).collect();
        let next = pods.get(limit).map_or("", |pod| pod["metadata"]["name"].as_str().expect("it has one"));
        let items = &pods[..limit.min(pods.len())];
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": next });
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items })
    }
}

/// Returns a refusal, as the server says it.
pub(crate) fn status(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code })
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Answers the requests of one connection.
    fn serve(&self, wire: Box<dyn Wire>) -> std::io::Result<()> {
        let mut wire = BufReader::new(wire);
        loop {
            let mut head = Vec::new();
            for line in wire.by_ref().lines() {
                match line? {
                    line if line.is_empty() => break,
                    line => head.push(line),
                }
            }
            let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { return Ok(()) };
            let token = head.iter().find_map(|line| line.strip_prefix("authorization: Bearer "));
            let (at, query) = path.split_once('?').unwrap_or((path, ""));
            let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
            let mut state = self.lock();
            if state.turns_away() {
                return Ok(());
            }
            state.asked.push(path.to_owned());
            let node = at.strip_prefix("/api/v1/nodes/").map(|node| node.replace("%2D", "-"));
            let refused = state.refused.iter().find(|(part, _)| path.contains(part)).map(|(_, status)| *status);
            let (code, body) = if state.token.as_deref().is_some_and(|wanted| token != Some(wanted)) {
                (401, status(401, "Unauthorized"))
            } else if let Some(code) = refused {
                (code, status(code, "pods is forbidden: User \"system:serviceaccount:baton:router\" may not"))
            } else if let Some(node) = node {
                let labels = state.nodes.get(&node).cloned();
                labels.map_or((404, status(404, "not found")), |labels| {
                    (200, json!({ "kind": "PartialObjectMetadata", "metadata": { "name": node, "labels": labels } }))
                })
            } else if query.contains_key("watch") {
                let from: u64 = query["resourceVersion"].parse().expect("a version of this server");
                if from >= state.forgotten {
                    if self.watch(state, wire.get_mut(), from)? {
                        continue;
                    }
                    return Ok(());
                }
                (410, status(410, "too old resource version"))
            } else {
                (200, state.page(&query))
            };
            drop(state);
            let body = body.to_string();
            let wire = wire.get_mut();
            write!(wire, "HTTP/1.1 {code} Said\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
            wire.flush()?;
        }
    }

    /// Writes events after a version, until watches are ended. Returns whether the connection can be used again.
    fn watch<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wire: &mut Box<dyn Wire>,
        from: u64,
    ) -> std::io::Result<bool> {
        let era = state.era;
        let mut seen = from;
        wire.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        wire.flush()?;
        while state.era == era {
            let new: Vec<_> = state.events.iter().filter(|(version, _)| *version > seen).cloned().collect();
            if new.is_empty() {
                state = self.changed.wait(state).expect("no test panics with it");
                continue;
            }
            // A reader that is slow keeps nobody from changing what there is.
            drop(state);
            for (version, line) in new {
                seen = version;
                write!(wire, "{:x}\r\n{line}\n\r\n", line.len() + 1)?;
            }
            wire.flush()?;
            state = self.lock();
            state.told = seen;
        }
        let (last_words, is_clean) = &state.last_words;
        if !last_words.is_empty() {
            write!(wire, "{:x}\r\n{last_words}\r\n", last_words.len())?;
        }
        if *is_clean {
            wire.write_all(b"0\r\n\r\n")?;
        }
        wire.flush()?;
        Ok(*is_clean)
    }
}
