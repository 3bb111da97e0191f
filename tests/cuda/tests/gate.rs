//! The real compiler takes all kernels, for every architecture, and what they take of a card is a committed table.
//!
//! `make test-cuda-gate` runs it, and `make fix-cuda-gate` writes the table. It needs no card, and no driver.

use cuda::compiler::{Compiled, Compiler, Source};
use cuda::kernels::{HOT, OPTIONS, SOURCES};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What kernels are compiled for: cards from the A100 on.
const ARCHITECTURES: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"];

/// The one whose instructions are looked at: that of an H100 and an H200.
const LOOKED_AT: &str = "sm_90a";

/// How a kernel waits there for the one ahead of it.
const WAIT: &str = "ACQBULK";

/// Tells the gate that it shall write the table.
const WRITE: &str = "WRITE_TABLE";

/// The table.
const TABLE: &str = "../../cuda/kernels/resources.md";

/// What a kernel takes of a card.
#[derive(Clone, Copy, Debug, Default)]
struct Resources {
    registers: u32,
    /// Bytes of registers that a thread keeps in memory: written and read.
    spilled: u32,
    /// Bytes of static shared memory.
    shared: u32,
}

/// Returns the number before a word.
fn number_before(text: &str, word: &str) -> Option<u32> {
    let before = text[..text.find(word)?].trim_end();
    before[before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1)..].parse().ok()
}

/// Reads what the compiler says of each kernel.
fn resources(log: &str) -> BTreeMap<String, Resources> {
    let mut kernels = BTreeMap::new();
    let mut name = String::new();
    for line in log.lines() {
        if let Some(rest) = line.split("entry function '").nth(1) {
            name = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.insert(name.clone(), Resources::default());
        }
        let Some(kernel) = kernels.get_mut(&name) else { continue };
        if let Some(written) = number_before(line, " bytes spill stores") {
            kernel.spilled = written + number_before(line, " bytes spill loads").unwrap_or(0);
        }
        if let Some(registers) = number_before(line, " registers") {
            (kernel.registers, kernel.shared) = (registers, number_before(line, " bytes smem").unwrap_or(0));
        }
    }
    kernels
}

/// Returns the instructions of an image, if there is a disassembler.
fn instructions(image: &[u8]) -> Option<String> {
    let file = std::env::temp_dir().join(format!("baton-gate-{}.cubin", std::process::id()));
    std::fs::write(&file, image).expect("a file");
    let output = Command::new("nvdisasm").arg(&file).output();
    std::fs::remove_file(&file).expect("it was written");
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Splits a listing into its kernels, by name.
fn by_kernel(listing: &str) -> BTreeMap<&str, &str> {
    let parts = listing.split("\t.section\t.text.").skip(1);
    parts.filter_map(|part| part.split_once(',')).collect()
}

/// Fails unless a hot kernel has the instructions that it is fast by.
fn check_instructions(source: &Source, listing: &str) {
    let kernels = by_kernel(listing);
    for hot in HOT.iter().filter(|hot| hot.source == source.name) {
        let text = kernels.get(hot.kernel).unwrap_or_else(|| panic!("{} has no kernel {}", source.name, hot.kernel));
        for &wanted in hot.instructions {
            assert!(text.contains(wanted), "{} has no {wanted} on {LOOKED_AT}", hot.kernel);
        }
        if let Some(ahead) = hot.ahead {
            let (at, wait) = (text.find(ahead), text.find(WAIT));
            assert!(at.is_some() && at < wait, "{} waits before it has {ahead} on {LOOKED_AT}", hot.kernel);
        }
        for banned in ["LDL", "STL"] {
            let has = text.lines().any(|line| line.split_whitespace().any(|word| word.starts_with(banned)));
            assert!(!has, "{} keeps registers in memory ({banned}) on {LOOKED_AT}", hot.kernel);
        }
    }
}

/// Compiles each source for each architecture, on all processors.
fn compile_all(compiler: &Compiler) -> Vec<Vec<Compiled>> {
    let next = AtomicUsize::new(0);
    let images: Vec<OnceLock<Compiled>> = (0..SOURCES.len() * ARCHITECTURES.len()).map(|_| OnceLock::new()).collect();
    let compile = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(image) = images.get(number)
        {
            let (source, architecture) = (number / ARCHITECTURES.len(), number % ARCHITECTURES.len());
            let compiled = compiler.compile(&SOURCES[source], ARCHITECTURES[architecture], OPTIONS);
            let _ = image.set(compiled.expect("our sources compile"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(compile);
        }
    });
    let mut images = images.into_iter().map(|image| image.into_inner().expect("it was compiled"));
    SOURCES.iter().map(|_| images.by_ref().take(ARCHITECTURES.len()).collect()).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "make tells a test through the environment that it shall write")]
fn all_kernels_compile_and_take_what_is_written_down() {
    let compiler = match Compiler::load() {
        Ok(compiler) => compiler,
        Err(error) => return println!("skipped: {error}"),
    };
    let mut table = String::from(HEAD);
    let mut has_disassembler = true;
    for (source, images) in SOURCES.iter().zip(compile_all(&compiler)) {
        let mut rows: BTreeMap<String, [Resources; ARCHITECTURES.len()]> = BTreeMap::new();
        for (at, (architecture, compiled)) in ARCHITECTURES.into_iter().zip(images).enumerate() {
            let kernels = resources(&compiled.log);
            if kernels.is_empty() {
                return println!("skipped: this libnvrtc is an emulator; `make test-cuda-gate` has the real one");
            }
            for (kernel, found) in kernels {
                let is_hot = HOT.iter().any(|hot| hot.source == source.name && hot.kernel == kernel);
                assert!(!is_hot || found.spilled == 0, "{kernel} spills {} bytes on {architecture}", found.spilled);
                rows.entry(kernel).or_default()[at] = found;
            }
            if architecture == LOOKED_AT {
                match instructions(&compiled.image) {
                    Some(listing) => check_instructions(source, &listing),
                    None => has_disassembler = false,
                }
            }
        }
        for (kernel, found) in rows {
            write!(table, "| {} | {kernel} |", source.name).expect("a text");
            for Resources { registers, spilled, shared } in found {
                let spills = if spilled > 0 { format!(", spills {spilled}") } else { String::new() };
                write!(table, " {registers}{spills}, {shared} |").expect("a text");
            }
            table.push('\n');
        }
    }
    if !has_disassembler {
        println!("skipped: instructions are not looked at, since nvdisasm is not on the PATH");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, table).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(committed, table, "the table is stale: look at what changed, then run `make fix-cuda-gate`");
}

/// What stands before the rows.
const HEAD: &str = "\
# What kernels take of a card

`make fix-cuda-gate` writes this page, with NVIDIA's own compiler. Each cell has the registers of a thread, the bytes of
registers that it keeps in memory if there are any, and the bytes of static shared memory of a block.

| source | kernel | sm_80 | sm_86 | sm_89 | sm_90a | sm_100a | sm_120a |
| --- | --- | --- | --- | --- | --- | --- | --- |
";
