//! How the kernels of the CPU engine were compiled. A closure in a kernel can stay a function of its own, which is
//! compiled without the features of the CPU: each of its instructions is then a call, and nothing but speed tells.

use crate::models::binary;

/// How the mangled name of a function of the kernels begins.
const KERNELS: &[u8] = b"_ZN6engine3cpu7kernels";

#[test]
fn no_closure_of_a_kernel_is_a_function_of_its_own() {
    let binary = std::fs::read(binary()).expect("the binary can be read");
    let names: Vec<_> = binary.split(|&byte| byte == 0).filter(|text| text.starts_with(KERNELS)).collect();
    assert!(
        !names.is_empty(),
        "the binary has no names of kernels: it was stripped, or names are mangled in a new way"
    );
    let closures: Vec<_> =
        names.iter().map(|name| String::from_utf8_lossy(name)).filter(|n| n.contains("closure")).collect();
    assert_eq!(closures, [""; 0], "write a loop or a function that is always inlined");
}
