//! The compiler of kernels, which NVIDIA ships as a library, and what it made before.
//!
//! Kernels are compiled where they run, for the card that is there. What comes of it is kept in a folder, so that the
//! next start takes no time. A folder that cannot be written, or holds something broken, costs time alone.

mod cache;

pub use cache::{Cache, Key};

use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString, c_char};

/// The compiler's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    version: (u32, u32),
}

/// Why kernels cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The library is not there.
    #[error(
        "libnvrtc is not there: install nvidia-cuda-nvrtc (PyPI) or cuda-nvrtc of CUDA 12.3 or later, and let LD_LIBRARY_PATH name its folder"
    )]
    Missing,
    /// A source is at fault; it is ours.
    #[error("{name} does not compile for {architecture}: {log}")]
    Source {
        /// The source.
        name: &'static str,
        /// What it was compiled for.
        architecture: String,
        /// What the compiler wrote.
        log: String,
    },
    /// Another call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The call.
        call: &'static str,
        /// The library's words.
        reason: String,
    },
}

/// What is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The name of its file.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// The files that it includes, by name and text.
    pub headers: &'static [(&'static str, &'static str)],
}

/// What the compiler made of a source.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What a device loads.
    pub image: Vec<u8>,
    /// What the compiler wrote: registers and memory of each kernel, where the options ask for it.
    pub log: String,
}

impl Compiler {
    /// Loads the library. Errors: it is not there, or does not answer.
    pub fn load() -> Result<Self, CompileError> {
        // SAFETY: opening the library runs its initialisers, as every user of it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(CompileError::Missing);
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is there; two numbers are written.
        check("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
        Ok(Self { version: (major.unsigned_abs(), minor.unsigned_abs()) })
    }

    /// Returns its version: major, minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles a source for an architecture, as in `sm_90a`. Errors: [`CompileError`].
    pub fn compile(&self, source: &Source, architecture: &str, options: &[&str]) -> Result<Compiled, CompileError> {
        let program = Program::new(source)?;
        let target = format!("--gpu-architecture={architecture}");
        let options: Vec<CString> = [target.as_str()].iter().chain(options).copied().map(text).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives; so many strings are read.
        let answer = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
        let log = program.log();
        if answer == sys::nvrtcResult::NVRTC_ERROR_COMPILATION {
            return Err(CompileError::Source { name: source.name, architecture: architecture.to_owned(), log });
        }
        check("nvrtcCompileProgram", answer)?;
        let mut len = 0;
        // SAFETY: one number is written.
        check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(program.0, &mut len) })?;
        let mut image = vec![0_u8; len];
        // SAFETY: the library writes as many bytes as it said.
        check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()) })?;
        Ok(Compiled { image, log })
    }
}

/// Returns what kernels are compiled for on a card of this compute capability. From 9.0 on cards have instructions that
/// no later one promises, and the name says so.
pub fn architecture((major, minor): (u32, u32)) -> String {
    const FIRST_OF_ITS_OWN: u32 = 9;
    let own = if major >= FIRST_OF_ITS_OWN { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// A program of the library.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: &Source) -> Result<Self, CompileError> {
        let (name, body) = (text(source.name), text(source.text));
        let names: Vec<CString> = source.headers.iter().map(|(name, _)| text(name)).collect();
        let bodies: Vec<CString> = source.headers.iter().map(|(_, body)| text(body)).collect();
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, bodies) = (pointers(&names), pointers(&bodies));
        let mut raw = std::ptr::null_mut();
        // SAFETY: all strings live, and the library copies them; one handle is written.
        let answer = unsafe {
            sys::nvrtcCreateProgram(
                &mut raw,
                body.as_ptr(),
                name.as_ptr(),
                names.len() as i32,
                bodies.as_ptr(),
                names.as_ptr(),
            )
        };
        check("nvrtcCreateProgram", answer)?;
        Ok(Self(raw))
    }

    /// Returns what the compiler wrote.
    fn log(&self) -> String {
        let mut len = 0;
        // SAFETY: one number is written.
        if unsafe { sys::nvrtcGetProgramLogSize(self.0, &mut len) } != sys::nvrtcResult::NVRTC_SUCCESS {
            return String::new();
        }
        let mut log = vec![0_u8; len];
        // SAFETY: the library writes as many bytes as it said.
        unsafe { sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) };
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(len);
        String::from_utf8_lossy(&log[..end]).trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn text(text: &str) -> CString {
    CString::new(text).expect("sources and options have no zeros")
}

fn check(call: &'static str, answer: sys::nvrtcResult) -> Result<(), CompileError> {
    if answer == sys::nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library returns a string of its own, which stays.
    let reason = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(answer)) };
    Err(CompileError::Call { call, reason: reason.to_string_lossy().into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_architectures() {
        for (capability, name) in [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")] {
            assert_eq!(architecture(capability), name);
        }
    }
}
