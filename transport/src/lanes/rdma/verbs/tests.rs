use super::layout::*;
use super::{Library, RdmaLibraryError, outcome};
use std::ffi::CString;
use std::io::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::{Command, Stdio};

/// What C calls something, and what it is here.
type Measure = (&'static str, usize);

macro_rules! sizes {
    ($($name:literal: $own:ty),* $(,)?) => { [$((concat!("sizeof(struct ", $name, ")"), size_of::<$own>())),*] };
}

macro_rules! offsets {
    ($($name:literal, $own:ty: { $($field:literal = $own_field:ident),* $(,)? })*) => {
        [$($((concat!("offsetof(struct ", $name, ", ", $field, ")"), offset_of!($own, $own_field))),*),*]
    };
}

/// Those that are made here, whole. That of a port grew at its end, which the function that is called leaves alone.
const SIZES: [Measure; 8] = sizes! {
    "ibv_device_attr": DeviceAttributes,
    "ibv_global_route": GlobalRoute,
    "ibv_ah_attr": Address,
    "ibv_qp_cap": PairCapacity,
    "ibv_qp_init_attr": PairInit,
    "ibv_qp_attr": PairAttributes,
    "ibv_sge": LocalPiece,
    "ibv_send_wr": Request,
};

const OFFSETS: [Measure; 79] = offsets! {
    "ibv_context", Context: { "device" = device, "ops" = calls }
    "ibv_context_ops", ContextCalls: { "poll_cq" = poll, "req_notify_cq" = notify, "post_send" = post }
    "ibv_comp_channel", Channel: { "context" = context, "fd" = fd }
    "ibv_cq", CompletionQueue: { "context" = context }
    "ibv_qp", Pair: { "context" = context, "handle" = handle, "qp_num" = number }
    "ibv_mr", Region: { "handle" = handle, "lkey" = local_key, "rkey" = remote_key }
    "ibv_device_attr", DeviceAttributes: {
        "max_cqe" = queue_entries_max,
        "max_qp_rd_atom" = reads_of_peers_max,
        "max_qp_init_rd_atom" = reads_max,
        "max_pkeys" = partition_keys,
        "phys_port_cnt" = ports,
    }
    "ibv_port_attr", PortAttributes: {
        "state" = state,
        "active_mtu" = mtu,
        "gid_tbl_len" = gids,
        "lid" = lid,
        "link_layer" = link_layer,
        "port_cap_flags2" = more_capabilities,
    }
    "ibv_global_route", GlobalRoute: {
        "dgid" = gid,
        "flow_label" = flow_label,
        "sgid_index" = gid_index,
        "hop_limit" = hops,
        "traffic_class" = traffic_class,
    }
    "ibv_ah_attr", Address: {
        "grh" = route,
        "dlid" = lid,
        "sl" = service_level,
        "src_path_bits" = path_bits,
        "static_rate" = rate,
        "is_global" = has_route,
        "port_num" = port,
    }
    "ibv_qp_cap", PairCapacity: {
        "max_send_wr" = requests,
        "max_recv_wr" = receives,
        "max_send_sge" = request_pieces,
        "max_recv_sge" = receive_pieces,
        "max_inline_data" = inline_bytes,
    }
    "ibv_qp_init_attr", PairInit: {
        "send_cq" = send_completions,
        "recv_cq" = receive_completions,
        "srq" = shared_receives,
        "cap" = capacity,
        "qp_type" = kind,
        "sq_sig_all" = all_are_told,
    }
    "ibv_qp_attr", PairAttributes: {
        "qp_state" = state,
        "path_mtu" = mtu,
        "rq_psn" = first_packet_of_peer,
        "sq_psn" = first_packet,
        "dest_qp_num" = number_of_peer,
        "qp_access_flags" = access,
        "cap" = capacity,
        "ah_attr" = address,
        "alt_ah_attr" = other_address,
        "pkey_index" = partition_index,
        "max_rd_atomic" = reads,
        "max_dest_rd_atomic" = reads_of_peer,
        "min_rnr_timer" = not_ready_wait,
        "port_num" = port,
        "timeout" = answer_wait,
        "retry_cnt" = answer_retries,
        "rnr_retry" = not_ready_retries,
        "rate_limit" = rate_limit,
    }
    "ibv_sge", LocalPiece: { "addr" = address, "length" = len, "lkey" = key }
    "ibv_send_wr", Request: {
        "wr_id" = id,
        "next" = next,
        "sg_list" = pieces,
        "num_sge" = piece_count,
        "opcode" = operation,
        "send_flags" = flags,
        "wr.rdma.remote_addr" = remote_address,
        "wr.rdma.rkey" = remote_key,
    }
    "ibv_wc", Completion: { "wr_id" = id, "status" = status }
};

const NUMBERS: [Measure; 31] = [
    ("sizeof(struct ibv_wc)", size_of::<Completion>()),
    ("sizeof(union ibv_gid)", size_of::<Gid>()),
    ("_Alignof(union ibv_gid)", align_of::<Gid>()),
    ("IBV_PORT_ACTIVE", PORT_ACTIVE as usize),
    ("IBV_LINK_LAYER_ETHERNET", LINK_ETHERNET as usize),
    ("IBV_MTU_256", MTU_SMALLEST as usize),
    ("IBV_QPT_RC", PAIR_CONNECTED as usize),
    ("IBV_QPS_INIT", STATE_INITIAL as usize),
    ("IBV_QPS_RTR", STATE_RECEIVING as usize),
    ("IBV_QPS_RTS", STATE_SENDING as usize),
    ("IBV_QPS_ERR", STATE_ERROR as usize),
    ("IBV_QP_STATE", OF_STATE as usize),
    ("IBV_QP_ACCESS_FLAGS", OF_ACCESS as usize),
    ("IBV_QP_PKEY_INDEX", OF_PARTITION as usize),
    ("IBV_QP_PORT", OF_PORT as usize),
    ("IBV_QP_AV", OF_ADDRESS as usize),
    ("IBV_QP_PATH_MTU", OF_MTU as usize),
    ("IBV_QP_TIMEOUT", OF_ANSWER_WAIT as usize),
    ("IBV_QP_RETRY_CNT", OF_ANSWER_RETRIES as usize),
    ("IBV_QP_RNR_RETRY", OF_NOT_READY_RETRIES as usize),
    ("IBV_QP_RQ_PSN", OF_FIRST_PACKET_OF_PEER as usize),
    ("IBV_QP_MAX_QP_RD_ATOMIC", OF_READS as usize),
    ("IBV_QP_MIN_RNR_TIMER", OF_NOT_READY_WAIT as usize),
    ("IBV_QP_SQ_PSN", OF_FIRST_PACKET as usize),
    ("IBV_QP_MAX_DEST_RD_ATOMIC", OF_READS_OF_PEER as usize),
    ("IBV_QP_DEST_QPN", OF_NUMBER_OF_PEER as usize),
    ("IBV_ACCESS_LOCAL_WRITE", LOCAL_WRITE as usize),
    ("IBV_ACCESS_REMOTE_READ", REMOTE_READ as usize),
    ("IBV_ACCESS_RELAXED_ORDERING", RELAXED_ORDERING as usize),
    ("IBV_WR_RDMA_READ", READ as usize),
    ("IBV_SEND_SIGNALED", IS_TOLD as usize),
];

/// Compiles C into `out`. Errors: what the compiler says.
fn compile(source: &str, flags: &[&str], out: &Path) -> Result<(), String> {
    let mut command = Command::new("cc");
    command.args(flags).args(["-x", "c", "-o"]).arg(out).arg("-");
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| format!("cc: {error}"))?;
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(source.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Returns whether C can be compiled that includes `header`; else a line says that the test is skipped.
fn compiles(header: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let attempt = compile(&format!("#include <{header}>\n"), &["-c"], &folder.path().join("attempt"));
    if let Err(reason) = &attempt {
        let reason = reason.lines().next().unwrap_or_default();
        println!("skipped: it takes a C compiler and {header} (scripts/install-tools rdma): {reason}");
    }
    attempt.is_ok()
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    if !compiles("infiniband/verbs.h") {
        return;
    }
    let all: Vec<Measure> = [&SIZES[..], &OFFSETS, &NUMBERS].concat();
    let says = |(name, _): &Measure| format!("printf(\"%zu\\n\", (size_t)({name}));");
    let says: String = all.iter().map(says).collect();
    let source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {{ {says} return 0; }}\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("measure");
    compile(&source, &[], &program).expect("the header has all of it");
    let output = Command::new(&program).output().expect("it runs");
    let said = String::from_utf8(output.stdout).expect("it says numbers");
    let said: Vec<usize> = said.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(said.len(), all.len());
    for ((name, own), header) in all.iter().zip(said) {
        assert_eq!(*own, header, "{name}");
    }
}

/// A library that has these functions, which do nothing.
fn library_with(functions: &[&str], folder: &Path) -> Result<Library, RdmaLibraryError> {
    let source: String = functions.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
    let file = folder.join("libibverbs.so.1");
    compile(&source, &["-shared", "-fPIC"], &file).expect("it compiles");
    Library::load(&CString::new(file.to_str().expect("it is text")).expect("no nul"))
}

#[test]
fn a_library_that_is_absent_or_lacks_a_function_is_a_reason() {
    let absent = Library::load(c"/nowhere/libibverbs.so.1").err().expect("it is not there").to_string();
    for part in ["/nowhere/libibverbs.so.1", "No such file", "apt install libibverbs1"] {
        assert!(absent.contains(part), "{absent}");
    }
    if !compiles("stddef.h") {
        return;
    }
    for lacks in Library::NEEDED {
        let folder = tempfile::tempdir().expect("a folder");
        let others: Vec<&str> = Library::NEEDED.iter().copied().filter(|name| name != lacks).collect();
        let reason = library_with(&others, folder.path()).err().expect("it is too old").to_string();
        assert!(reason.contains(&format!("lacks {lacks} ")), "{reason}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let old = library_with(Library::NEEDED, folder.path()).expect("it has what is needed");
    assert!(old.register_relaxed.is_none() && old.register_dma_buf.is_none(), "what came later may be absent");
}

#[test]
fn what_answers_with_the_number_of_an_error_is_understood() {
    assert!(outcome(0).is_ok());
    let number = |code| outcome(code).expect_err("it failed").raw_os_error();
    assert_eq!((number(libc::EIO), number(-libc::EIO)), (libc::EIO, libc::EIO));
}
