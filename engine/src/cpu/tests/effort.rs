//! How much random tests do: less under Miri, which takes thousands of times as long.

use proptest::prelude::*;

/// Cases of a property: one where others have `share`, since each takes long. `PROPTEST_CASES` counts as it does
/// for the others. Under Miri a few; there are no files to note failures in, either.
pub(in crate::cpu) fn cases(share: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    if cfg!(miri) {
        ProptestConfig { cases: 2, failure_persistence: None, ..usual }
    } else {
        ProptestConfig { cases: usual.cases.div_ceil(share), ..usual }
    }
}

/// Returns a size; another one under Miri.
pub(in crate::cpu) const fn size(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}

/// Random sizes; others under Miri.
pub(in crate::cpu) fn sizes(
    usual: impl Strategy<Value = usize> + 'static,
    under_miri: impl Strategy<Value = usize> + 'static,
) -> BoxedStrategy<usize> {
    if cfg!(miri) { under_miri.boxed() } else { usual.boxed() }
}
