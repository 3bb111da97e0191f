//! What the device `cuda` needs: a driver, a card that the kernels run on, and libraries of CUDA.

use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::{Fact, Host};
use crate::output::human_bytes;
use engine::cuda::CAPABILITY_MIN;

/// Major and minor number.
type Version = (u32, u32);

/// The first version of CUDA that the driver may implement and the libraries may be of.
const CUDA_MIN: Version = (12, 3);
/// The first driver that implements it.
const DRIVER_MIN: u32 = 545;
/// The first compute capability of a generation of cards, and the first nvrtc that compiles for them.
const LATE_CARDS: [(Version, Version); 1] = [((10, 0), (12, 8))];
/// How the driver comes into a container.
const CONTAINER: &str = "for a container: docker run --gpus all, podman run --device nvidia.com/gpu=all, or nvidia.com/gpu \
                         in a pod's limits; and NVIDIA_DRIVER_CAPABILITIES=compute,utility";

/// What is known of a card.
struct Card {
    name: String,
    capability: Version,
    memory: u64,
}

/// Returns the version of NVIDIA's driver, and the CUDA that it implements.
pub(super) fn driver(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let module = host.file("/proc/driver/nvidia/version");
    let library = host.look(Fact::CudaDriver);
    let mut findings = Vec::new();
    if let Some(text) = &module {
        let is_version = |word: &&str| word.split('.').count() >= 2 && word.starts_with(char::is_numeric);
        findings.push(match text.split_whitespace().find(is_version) {
            Some(version) => {
                let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
                let fix = format!("install driver {DRIVER_MIN} or later: CUDA {} needs it", dotted(CUDA_MIN));
                Finding::of(major >= DRIVER_MIN, format!("driver {version}"), fix)
            }
            None => Finding::advice("a driver of unknown version", "nvidia-smi"),
        });
    }
    let wanted = dotted(CUDA_MIN);
    match (library.as_deref().map(|text| (text, version(text))), &module) {
        (Some((_, Some(found))), _) => findings.push(Finding::of(
            found >= CUDA_MIN,
            format!("libcuda.so.1 implements CUDA {}; {wanted} or later is wanted", dotted(found)),
            format!("install driver {DRIVER_MIN} or later"),
        )),
        (Some((why, None)), Some(_)) => findings.push(Finding::bad(
            format!("the device cuda is not available: {why}"),
            format!("apt install libcuda1 (Debian) or libnvidia-compute-VERSION (Ubuntu), of the driver's version; {CONTAINER}"),
        )),
        (Some((why, None)), None) => findings.push(no_cuda(subject, &format!("the device cuda is not available: {why}"))),
        (None, Some(_)) => {}
        (None, None) => findings.push(no_cuda(subject, "the device cuda is not available: no NVIDIA driver")),
    }
    findings
}

/// Returns the cards, and whether the kernels run on them.
pub(super) fn cards(subject: &Subject<'_>) -> Vec<Finding> {
    let cards = known_cards(subject.host);
    if cards.is_empty() {
        return vec![Finding::absent("none that the driver shows")];
    }
    let is_new = |card: &Card| card.capability >= CAPABILITY_MIN;
    let has_new = cards.iter().any(is_new);
    let finding = |(number, card): (usize, &Card)| {
        let Card { name, capability, memory } = card;
        let what = format!("{number}: {name}, {}, compute capability {}", human_bytes(*memory), dotted(*capability));
        if is_new(card) {
            return Finding::good(what);
        }
        let what = format!("{what}: the kernels need {} or later", dotted(CAPABILITY_MIN));
        let fix = "take another card: engine.card = NUMBER, or CUDA_VISIBLE_DEVICES";
        if has_new { Finding::advice(what, fix) } else { Finding::bad(what, fix) }
    };
    cards.iter().enumerate().map(finding).collect()
}

/// Returns the version of the compiler of kernels.
pub(super) fn compiler(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let Some(driver) = driver_version(host) else { return vec![no_driver()] };
    let Some(said) = host.look(Fact::Nvrtc) else { return Vec::new() };
    let newest = known_cards(host).iter().map(|card| card.capability).max().unwrap_or(CAPABILITY_MIN);
    let of_card = |(card, compiler): &(Version, Version)| (newest >= *card).then_some(*compiler);
    let least = LATE_CARDS.iter().filter_map(of_card).max().unwrap_or(CUDA_MIN);
    let wanted = format!("{} or later is wanted, and of no later CUDA than the driver's {}", dotted(least), driver.0);
    let fix = package(driver, "nvidia-cuda-nvrtc", "cuda_nvrtc");
    vec![match version(&said) {
        None => Finding::bad(format!("{said}; {wanted}"), fix),
        // What a compiler makes runs on drivers of its own major version, and on later ones.
        Some(found) => {
            Finding::of(found >= least && found.0 <= driver.0, format!("libnvrtc {}; {wanted}", dotted(found)), fix)
        }
    }]
}

/// Returns the version of the library of matrix products.
pub(super) fn cublas_lt(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let Some(driver) = driver_version(host) else { return vec![no_driver()] };
    let Some(said) = host.look(Fact::CublasLt) else { return Vec::new() };
    let wanted = format!("engine.kernels = fast needs {} or later", dotted(CUDA_MIN));
    let fix = package(driver, "nvidia-cublas", "cublas");
    vec![match version(&said) {
        None if subject.settings.wants_fast => Finding::bad(said, fix),
        None => Finding::absent(format!("libcublasLt is not there; {wanted}, exact does not use it")),
        Some(found) if found >= CUDA_MIN => Finding::good(format!("libcublasLt {}; {wanted}", dotted(found))),
        Some(found) => Finding::advice(format!("libcublasLt {}; {wanted}", dotted(found)), fix),
    }]
}

/// Says that there is no CUDA: wrong where the settings want it, else nothing to check.
fn no_cuda(subject: &Subject<'_>, what: &str) -> Finding {
    if !subject.settings.wants_cuda {
        return Finding::absent(what);
    }
    let fix = format!("install driver {DRIVER_MIN} or later, or engine.device = cpu; {CONTAINER}");
    Finding::bad(format!("{what}, and engine.device is cuda"), fix)
}

/// Says that a library is of no use.
fn no_driver() -> Finding {
    Finding::absent("not looked for: there is no driver that it could be used with")
}

/// Returns the commands that bring a library of the driver's CUDA. `folder`: where packages of CUDA 12 put it.
fn package((major, _): Version, name: &str, folder: &str) -> String {
    let (suffix, folder) = match major {
        ..=12 => ("-cu12", folder),
        _ => ("", "cu13"),
    };
    format!("pip install --target /opt/cuda {name}{suffix}; export LD_LIBRARY_PATH=/opt/cuda/nvidia/{folder}/lib")
}

/// Returns the CUDA that the driver implements.
fn driver_version(host: &Host) -> Option<Version> {
    version(&host.look(Fact::CudaDriver)?)
}

fn known_cards(host: &Host) -> Vec<Card> {
    let card = |line: &str| {
        let mut parts = line.rsplitn(3, "; ");
        let (memory, capability, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Card { name: name.to_owned(), capability: version(capability)?, memory: memory.parse().ok()? })
    };
    host.look(Fact::CudaCards).map(|lines| lines.lines().filter_map(card).collect()).unwrap_or_default()
}

/// Reads `12.8`. `None`: it is no version, but says why there is none.
fn version(text: &str) -> Option<Version> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn dotted((major, minor): Version) -> String {
    format!("{major}.{minor}")
}
