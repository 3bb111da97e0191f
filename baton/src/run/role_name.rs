//! What the roles are called.

use domain::session::Role;

/// Returns the role in words.
pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    }
}
