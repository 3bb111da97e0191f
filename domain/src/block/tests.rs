//! Which scopes share blocks, and whose they are.

use super::{Scope, ScopeParts, Tenant, salted_tenant};

fn scope(tenant: &str) -> Scope {
    Scope::derive(&ScopeParts { weights: [1; 32], layout: 1, adapter: None, tenant })
}

#[test]
fn a_salt_parts_the_blocks_of_a_tenant_and_not_its_account() {
    for tenant in ["", "alice"] {
        let salted = [salted_tenant(tenant, "a"), salted_tenant(tenant, "b")];
        let scopes = [scope(tenant), scope(&salted[0]), scope(&salted[1])];
        for (at, one) in scopes.iter().enumerate() {
            assert!(scopes[at + 1..].iter().all(|other| other.block(None, &[7]) != one.block(None, &[7])));
            assert_eq!(one.tenant(), Tenant::named(tenant));
        }
        assert!(scope(&salted_tenant(tenant, "a")) == scopes[1], "the same salt shares");
        assert!(!salted[0].contains("a\u{1f}a"), "the salt itself is not told");
    }
    assert!(scope(&salted_tenant("alice", "a")) != scope(&salted_tenant("bob", "a")), "another's salt shares nothing");
}
