//! TLS between agents: who is refused and why, and that nobody on the way reads or changes what is said. What goes
//! over it is tested with every other lane.

use crate::certificates::{Authority, authority, good, load};
use crate::ends::*;
use crate::tcp::{Relay, between};
use rcgen::{SanType, date_time_ymd};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use transport::{AgentConfig, Hub, Lane, RailFault, Refusal, Tls, TlsError};

/// An end that takes the lane `tcp` alone, with these certificates or none.
fn tcp_end(id: domain::WorkerId, len: usize, tls: Option<&Tls>) -> End {
    let only = |config: &mut AgentConfig| (config.lanes, config.tls) = (vec![Lane::Tcp], tls.cloned());
    end(&Hub::new(), id, 1, len, only)
}

fn refused(end: &End) -> u64 {
    let refused = end.agent.counts().refused;
    refused.iter().find(|(why, _)| *why == Refusal::Encryption).map_or(0, |(_, count)| *count)
}

/// Has a reader try to connect an owner: the reason why it cannot is this, and the owner counts it.
#[track_caller]
fn check_refused(owners: Option<&Tls>, readers: Option<&Tls>, expect: &str) {
    let (owner, reader) = (tcp_end(OWNER, 8, owners), tcp_end(READER, 8, readers));
    reader.agent.introduce(owner.info.clone());
    reader.agent.connect(OWNER);
    let reason = reader.lost(OWNER);
    assert!(reason.contains(expect), "{reason}");
    while refused(&owner) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_either_end() {
    let stranger = Authority::new("somebody else's");
    let both = authority().pem() + &stranger.pem();
    let issued = stranger.issue(|_| ());
    let (distrusted, trusting) = (load(&issued, &both).expect("it is sound"), load(&issued, &stranger.pem()));
    // The owner's is refused by the reader, the reader's by the owner.
    check_refused(Some(&distrusted), Some(&good()), "UnknownIssuer");
    check_refused(Some(&good()), Some(&distrusted), "UnknownCA");
    // Neither takes the other's: it is seen by the one that sees it first.
    check_refused(Some(&good()), Some(&trusting.expect("it is sound")), "UnknownIssuer");
}

#[test]
fn a_certificate_that_expired_or_is_for_another_name_is_refused() {
    let expired = authority().issue(|params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let expired = load(&expired, &authority().pem()).expect("that is for peers to say");
    check_refused(Some(&expired), Some(&good()), "certificate expired");
    check_refused(Some(&good()), Some(&expired), "CertificateExpired");
    let other = authority().issue(|params| {
        params.subject_alt_names = vec![SanType::DnsName("mail".try_into().expect("it is a name"))];
    });
    let other = load(&other, &authority().pem()).expect("that is for peers to say");
    check_refused(Some(&other), Some(&good()), "not valid for name \"baton\"");
    // What the owner says of the reader's is an alert, which names no names.
    check_refused(Some(&good()), Some(&other), "BadCertificate");
}

#[test]
fn who_speaks_without_tls_is_refused_where_it_is_demanded_and_the_other_way_round() {
    // A stranger is not told why.
    check_refused(Some(&good()), None, "TLS (transport.tls_certificate) at both ends or at neither");
    check_refused(None, Some(&good()), "it speaks without TLS, which transport.tls_certificate demands here");
}

#[test]
fn garbage_is_refused_counted_and_harms_nobody() {
    let owner = tcp_end(OWNER, 8, Some(&good()));
    let record = |kind: u8, body: &[u8]| [&[kind, 3, 3], &(body.len() as u16).to_be_bytes()[..], body].concat();
    let garbage = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        vec![0xFF; 64],
        vec![0; 64],
        // Records that are too long, out of place, or have nothing in them that is TLS.
        [&[0x16, 3, 1, 0xFF, 0xFF][..], &[7; 200]].concat(),
        record(0x16, &[1, 0, 0, 2, 3, 3]),
        record(0x16, &[0xEE; 300]),
        record(0x15, &[2, 40]),
        [record(0x16, &[1]), record(0x17, &[1, 2, 3])].concat(),
    ];
    for (number, bytes) in garbage.iter().enumerate() {
        let mut stream = TcpStream::connect(&owner.info.address.tcp).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        // It may be refused before it is said to its end.
        let _ = stream.write_all(bytes);
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "garbage {number}"),
        }
        assert_eq!(refused(&owner), number as u64 + 1, "garbage {number}");
    }
    let reader = tcp_end(READER, 8, Some(&good()));
    reader.agent.introduce(owner.info.clone());
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
    assert!(reader.agent.lanes()[0].1.tls, "people are told");
}

/// An owner and a reader with a relay between them.
fn relayed(len: usize, tls: Option<&Tls>) -> (Pair, Relay) {
    between(tcp_end(OWNER, len, tls), tcp_end(READER, len, tls))
}

#[test]
fn nobody_on_the_way_reads_what_is_said() {
    const LEN: usize = 1 << 20;
    let tls = good();
    for tls in [None, Some(&tls)] {
        let (pair, relay) = relayed(LEN, tls);
        // SAFETY: the memory is as long, and no transfer is open.
        unsafe { pair.owner.memory.as_ptr().write_bytes(0x5A, LEN) };
        assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
        assert!(pair.reader.bytes() == pair.owner.bytes());
        pair.reader.agent.send(OWNER, vec![0x5A; 1000]).expect("there is room");
        assert_eq!(pair.owner.message(), (READER, vec![0x5A; 1000]));
        // So many alike, one after the other, are not among what is encrypted.
        assert_eq!(relay.longest_of(0x5A) >= 64, tls.is_none());
    }
}

#[test]
fn a_flipped_byte_anywhere_ends_the_connection_and_what_it_carried_comes_anew() {
    const LEN: usize = 1 << 20;
    for byte in [0, 3, 5, 6, 40_000, 1 << 19] {
        let (pair, relay) = relayed(LEN, Some(&good()));
        pair.owner.fill();
        relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + byte, Ordering::SeqCst);
        let end = pair.read(LEN, 0, &[(0, 0)]);
        assert!(end.result.is_ok(), "byte {byte}: {end:?}");
        assert!(pair.reader.bytes() == pair.owner.bytes(), "byte {byte}");
        let counts = pair.reader.agent.counts();
        assert!(counts.rails_put_aside.contains(&(RailFault::Failed, 1)), "byte {byte}: {counts:?}");
        assert_eq!((counts.corrupted, counts.rails_returned), (0, 1), "byte {byte}");
        assert_eq!(refused(&pair.reader), 1, "byte {byte}");
    }
}

#[test]
fn files_that_are_of_no_use_are_told() {
    let (pem, good, other) = (authority().pem(), authority().issue(|_| ()), authority().issue(|_| ()));
    let with = |certificate: &str, key: &str| crate::certificates::Issued {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    assert!(matches!(load(&with("", &good.key), &pem), Err(TlsError::Empty { .. })));
    assert!(matches!(load(&good, ""), Err(TlsError::Empty { .. })));
    assert!(matches!(load(&with(&good.certificate, ""), &pem), Err(TlsError::File { .. })));
    assert!(matches!(load(&with(&good.certificate, &other.key), &pem), Err(TlsError::Unusable(_))));
    let nowhere = std::path::Path::new("/nowhere");
    let error = Tls::load(nowhere, nowhere, nowhere).expect_err("there are no such files");
    assert!(error.to_string().contains("/nowhere"), "{error}");
}
