//! Whether NVIDIA's library of matrix products is there.

use cudarc::cublaslt::sys;

/// The library is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("libcublasLt is not there")]
pub struct NoCublasLt;

/// Returns its version: major, minor. Errors: it is not there.
pub fn cublas_lt_version() -> Result<(u32, u32), NoCublasLt> {
    // SAFETY: opening the library runs its initialisers, as every user of it does.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoCublasLt);
    }
    // SAFETY: the library is present; the call takes nothing.
    Ok(parts(unsafe { sys::cublasLtGetVersion() }))
}

/// Takes a version apart. Up to 11 the library counts a major version in thousands, since then in ten thousands.
fn parts(version: usize) -> (u32, u32) {
    const FIRST_WIDE: usize = 100_000;
    let (major, minor) = if version < FIRST_WIDE {
        (version / 1000, version % 1000 / 100)
    } else {
        (version / 10_000, version % 10_000 / 100)
    };
    (u32::try_from(major).unwrap_or(u32::MAX), minor as u32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_taken_apart() {
        for (version, expect) in [(11_1103, (11, 11)), (12_0600, (12, 6)), (13_0001, (13, 0)), (10_302, (10, 3))] {
            assert_eq!(super::parts(version), expect, "{version}");
        }
    }
}
