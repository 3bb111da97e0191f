use super::*;

fn member(id: u32, name: &str, address: Option<&str>) -> Member {
    let endpoint = address.map_or(Endpoint::InProcess, |address| Endpoint::Address(address.to_string()));
    Member { id: WorkerId(id), role: Role::Decode, name: name.to_string(), endpoint }
}

#[track_caller]
fn check_refused(members: Vec<Member>, expect: &str) {
    assert_eq!(StaticList::new(members).expect_err("it is refused").to_string(), expect);
}

#[test]
fn every_member_comes_up_once() {
    let mut list = StaticList::in_process(1, 2).expect("a membership");
    let mut seen = Vec::new();
    while let Some(Change::Up(member)) = list.poll() {
        seen.push((member.id.0, member.role, member.name));
    }
    let expect = [(1, Role::Prefill, "prefill-1"), (2, Role::Decode, "decode-1"), (3, Role::Decode, "decode-2")];
    assert_eq!(seen, expect.map(|(id, role, name)| (id, role, name.to_string())));
    assert_eq!(list.poll(), None);
}

#[test]
fn prefill_workers_are_optional_and_decode_workers_are_not() {
    assert_eq!(StaticList::in_process(0, 1).map(|list| list.members().len()), Ok(1));
    assert_eq!(StaticList::in_process(1, 0).unwrap_err(), StaticListError::NoDecode);
}

#[test]
fn too_many_are_refused_before_they_are_made() {
    assert_eq!(StaticList::in_process(usize::MAX, 1).unwrap_err(), StaticListError::TooMany(usize::MAX));
    assert_eq!(StaticList::in_process(MEMBERS_MAX - 1, 1).map(|list| list.members().len()), Ok(MEMBERS_MAX));
}

#[test]
fn what_stands_twice_is_named() {
    check_refused(vec![member(1, "a", None), member(1, "b", None)], "worker id 1 is listed twice");
    check_refused(vec![member(1, "a", None), member(2, "a", None)], "worker name \"a\" is listed twice");
    check_refused(
        vec![member(1, "a", Some("h:1")), member(2, "b", Some("h:1"))],
        "workers \"a\" and \"b\" have the same address h:1",
    );
    assert!(StaticList::new(vec![member(1, "a", None), member(2, "b", None)]).is_ok());
}

#[test]
fn addresses_are_checked() {
    for good in ["host:1", "10.0.0.1:65535", "[::1]:80"] {
        assert!(StaticList::new(vec![member(1, "a", Some(good))]).is_ok(), "{good}");
    }
    for bad in ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"] {
        let expect = format!("the address {bad:?} of worker \"a\" is not HOST:PORT");
        check_refused(vec![member(1, "a", Some(bad))], &expect);
    }
}
