//! The kernels: one file of sources each in `kernels/`, and beside it here the one place that knows its arguments.
//!
//! A launch is unsafe where the device reads and writes by addresses. What each kernel needs of them says its type.

mod norm;

pub use norm::{Norm, NormArgs};

use crate::compiler::{self, Cache, CompileError, Compiler, Key, Source};
use crate::driver::{Context, DriverError, Module};
use std::sync::Arc;

/// The files that all kernels include.
const HEADERS: &[(&str, &str)] =
    &[("device.cuh", include_str!("../kernels/device.cuh")), ("ptx.cuh", include_str!("../kernels/ptx.cuh"))];

/// Options of all kernels. Without contraction the same formula has the same bits everywhere; the standard is that of
/// the sources.
pub const OPTIONS: &[&str] = &["--fmad=false", "--std=c++17", "--ptxas-options=-v"];

/// Makes a source of a file in `kernels/`.
macro_rules! source {
    ($file:literal) => {
        $crate::compiler::Source {
            name: $file,
            text: include_str!(concat!("../../kernels/", $file)),
            headers: $crate::kernels::HEADERS,
        }
    };
}
pub(crate) use source;

/// Every source, for checks that compile all of them.
pub const SOURCES: &[Source] = &[norm::SOURCE];

/// A kernel that a step's time depends on.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    /// The file of its source.
    pub source: &'static str,
    /// Its name.
    pub kernel: &'static str,
    /// Instructions that it must have on an H100: those it is fast by.
    pub instructions: &'static [&'static str],
}

/// Hot kernels: they keep all of their registers, and have these instructions.
pub const HOT: &[Hot] = &[Hot { source: "norm.cu", kernel: "add_norm", instructions: &["LDG.E.128"] }];

/// A kernel cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The driver does not take it.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Compiles kernels for one device, or takes them from a folder.
#[derive(Debug)]
pub struct Loader {
    context: Arc<Context>,
    compiler: Compiler,
    cache: Option<Cache>,
    architecture: String,
    /// What an image depends on beside its source.
    host: String,
}

impl Loader {
    /// Makes a loader for a device. Errors: of the driver.
    pub fn new(context: &Arc<Context>, compiler: Compiler, cache: Option<Cache>) -> Result<Self, DriverError> {
        let architecture = compiler::architecture(context.capability()?);
        let (major, minor) = compiler.version();
        let host = format!("{} {architecture} nvrtc {major}.{minor}", context.name()?);
        Ok(Self { context: context.clone(), compiler, cache, architecture, host })
    }

    /// Returns the device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns what kernels are compiled for, as in `sm_90a`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Loads the kernels of a source. Errors: [`LoadError`].
    pub fn module(&self, source: &Source) -> Result<Arc<Module>, LoadError> {
        let headers = source.headers.iter().flat_map(|&(name, text)| [name, text]);
        let own = [self.host.as_str(), source.name, source.text];
        let key = Key::of(own.into_iter().chain(headers).chain(OPTIONS.iter().copied()));
        if let Some(image) = self.cache.as_ref().and_then(|cache| cache.get(key)) {
            match Module::load(&self.context, &image) {
                Ok(module) => return Ok(module),
                // Another driver made it, or what it refers to is gone.
                Err(error) => tracing::info!(source = source.name, %error, "a compiled kernel is made once more"),
            }
        }
        let compiled = self.compiler.compile(source, &self.architecture, OPTIONS)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(key, &compiled.image)
        {
            let folder = cache.folder().display();
            tracing::warn!(%folder, %error, "compiled kernels are not kept: the next start compiles them once more");
        }
        Ok(Module::load(&self.context, &compiled.image)?)
    }
}
