//! Matrix products by cublasLt, NVIDIA's library: kernels of the set `fast`. A row's bits may depend on how many rows
//! are beside it.
//!
//! All that the library asks for is asked when products are prepared: algorithms by counts of rows, layouts, and one
//! workspace. A launch sets numbers of what is there, and allocates nothing, so that graphs can record it.

use crate::driver::{Context, DeviceBytes, DriverError, Stream};
use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Bytes that the library may work in, on the device. Products of one [`Blas`] share them, one after the other.
pub const BLAS_WORKSPACE_BYTES: usize = 32 << 20;

/// The first version of the library that is taken, as it counts them: 12.3.
const VERSION_WANTED: usize = 120_300;

/// The library's number of an operand that is transposed.
const TRANSPOSED: i32 = 1;

/// Algorithms that the library is asked for, best first.
const CANDIDATES: usize = 8;

/// Bytes that all addresses are a multiple of.
const ALIGNMENT: u32 = 16;

/// Algorithms are asked for by counts of rows: up to this, up to twice it, and so on.
const ROWS_FIRST: u32 = 32;

/// Why products cannot be made by the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlasError {
    /// It is not there.
    #[error(
        "libcublasLt is not there: install nvidia-cublas (PyPI) or libcublas of CUDA 12.3 or later, and let LD_LIBRARY_PATH name its folder"
    )]
    Missing,
    /// It is too old.
    #[error("libcublasLt has the version {}; 12.3 or later is needed: install nvidia-cublas (PyPI)", version(*.found))]
    Old {
        /// Its version, as it counts them.
        found: usize,
    },
    /// It has no algorithm for a shape.
    #[error("libcublasLt has no algorithm for {outputs} outputs of {inputs} inputs and {rows} rows")]
    Shape {
        /// Outputs.
        outputs: u32,
        /// Inputs.
        inputs: u32,
        /// Rows.
        rows: u32,
    },
    /// A call of it failed.
    #[error("{call} failed: {status}")]
    Call {
        /// The call.
        call: &'static str,
        /// The library's name of the error.
        status: String,
    },
    /// There is no memory for its workspace.
    #[error("the card has no {BLAS_WORKSPACE_BYTES} bytes for libcublasLt to work in: {0}")]
    Memory(#[source] DriverError),
}

/// Returns a version in words.
fn version(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// Returns the version of the library: major, minor. It is loaded, and not used. Errors: it is not there.
pub fn blas_version() -> Result<(u32, u32), BlasError> {
    // SAFETY: opening the library runs its initialisers, as every user of it does.
    if !unsafe { sys::is_culib_present() } {
        return Err(BlasError::Missing);
    }
    // SAFETY: the library is present; the call takes nothing.
    let number = unsafe { sys::cublasLtGetVersion() };
    Ok(((number / 10_000) as u32, (number / 100 % 100) as u32))
}

/// What products have in common that are prepared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlasShape {
    /// Outputs.
    pub outputs: u32,
    /// Inputs, a multiple of 8.
    pub inputs: u32,
    /// Numbers from one row of the result to the next.
    pub stride: u32,
    /// Whether the result is in f32, and not in bf16.
    pub is_f32: bool,
    /// Whether there is a bias.
    pub has_bias: bool,
}

/// Operands of `out[rows][outputs] = x[rows][inputs] * weights[outputs][inputs]^T + bias`, all in device memory and
/// aligned to 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct BlasArgs {
    /// The shape, which was prepared.
    pub shape: BlasShape,
    /// Rows of bf16 or f32, as the shape says.
    pub out: u64,
    /// Rows of bf16.
    pub weights: u64,
    /// Rows of bf16.
    pub x: u64,
    /// Numbers in the format of the result, if the shape has a bias.
    pub bias: u64,
    /// Rows, at least 1 and at most as many as were prepared.
    pub rows: u32,
}

/// The library, with all that its products need.
#[derive(Debug)]
pub struct Blas {
    context: Arc<Context>,
    handle: sys::cublasLtHandle_t,
    version: usize,
    workspace: DeviceBytes,
    plans: HashMap<BlasShape, Plan>,
}

// SAFETY: handles and descriptions may be used by any thread, by one at a time; they are not shared (`Blas` is not
// `Sync`).
unsafe impl Send for Blas {}

/// How products of a shape are made.
#[derive(Debug)]
struct Plan {
    description: Description,
    weights: Layout,
    x: Layout,
    out: Layout,
    /// The most rows that each algorithm is for, rising.
    algorithms: Vec<(u32, sys::cublasLtMatmulAlgo_t)>,
}

impl Blas {
    /// Loads the library and allocates its workspace. Errors: [`BlasError`].
    pub fn load(context: &Arc<Context>) -> Result<Self, BlasError> {
        // SAFETY: opening the library runs its initialisers, as every user of it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(BlasError::Missing);
        }
        // SAFETY: the library is there.
        let version = unsafe { sys::cublasLtGetVersion() };
        if version < VERSION_WANTED {
            return Err(BlasError::Old { found: version });
        }
        context.bind().map_err(BlasError::Memory)?;
        let workspace = DeviceBytes::new(context, BLAS_WORKSPACE_BYTES).map_err(BlasError::Memory)?;
        let handle = called("cublasLtCreate", result::create_handle())?;
        Ok(Self { context: context.clone(), handle, version, workspace, plans: HashMap::new() })
    }

    /// Returns the library's version in words.
    pub fn version(&self) -> String {
        version(self.version)
    }

    /// Prepares products of a shape of up to `rows_max` rows. Errors: [`BlasError`].
    pub fn prepare(&mut self, shape: BlasShape, rows_max: u32) -> Result<(), BlasError> {
        if self.plans.get(&shape).is_some_and(|plan| plan.algorithms.last().is_some_and(|&(rows, _)| rows >= rows_max))
        {
            return Ok(());
        }
        self.context.bind().map_err(BlasError::Memory)?;
        let BlasShape { outputs, inputs, stride, is_f32, has_bias } = shape;
        let number = if is_f32 { sys::cudaDataType::CUDA_R_32F } else { sys::cudaDataType::CUDA_R_16BF };
        let bf16 = sys::cudaDataType::CUDA_R_16BF;
        // The library reads matrices column by column, so that it sees all of them transposed.
        let mut plan = Plan {
            description: Description::new(has_bias, number)?,
            weights: Layout::new(bf16, inputs, outputs, inputs)?,
            x: Layout::new(bf16, inputs, 1, inputs)?,
            out: Layout::new(number, outputs, 1, stride)?,
            algorithms: Vec::new(),
        };
        let preference = Preference::new()?;
        let (mut below, mut most) = (0, ROWS_FIRST);
        while below < rows_max {
            let rows = most.min(rows_max);
            let algorithm = self.algorithm(&plan, &preference, below + 1, rows)?;
            plan.algorithms.push((rows, algorithm.ok_or(BlasError::Shape { outputs, inputs, rows })?));
            (below, most) = (rows, most * 2);
        }
        self.plans.insert(shape, plan);
        Ok(())
    }

    /// Returns the best algorithm for `rows` rows that also takes `least`.
    fn algorithm(
        &self,
        plan: &Plan,
        preference: &Preference,
        least: u32,
        rows: u32,
    ) -> Result<Option<sys::cublasLtMatmulAlgo_t>, BlasError> {
        let Plan { description, weights, x, out, .. } = plan;
        plan.set_rows(rows)?;
        // SAFETY: results are plain numbers, for which zero is one.
        let mut found: [sys::cublasLtMatmulHeuristicResult_t; CANDIDATES] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: all handles live, and there is room for as many results as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                description.0,
                weights.0,
                x.0,
                out.0,
                out.0,
                preference.0,
                CANDIDATES as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        match status {
            sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => {}
            sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Ok(None),
            status => return called("cublasLtMatmulAlgoGetHeuristic", status.result()).map(|()| None),
        }
        plan.set_rows(least)?;
        let takes = |algorithm: &sys::cublasLtMatmulAlgo_t| {
            // SAFETY: as above; zero is a result.
            let mut result: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
            // SAFETY: all handles live, and one result is written.
            let status = unsafe {
                sys::cublasLtMatmulAlgoCheck(
                    self.handle,
                    description.0,
                    weights.0,
                    x.0,
                    out.0,
                    out.0,
                    algorithm,
                    &mut result,
                )
            };
            status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && result.workspaceSize <= BLAS_WORKSPACE_BYTES
        };
        let sound = found[..count as usize].iter().filter(|result| {
            result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && result.workspaceSize <= BLAS_WORKSPACE_BYTES
        });
        Ok(sound.map(|result| result.algo).find(takes))
    }

    /// Queues a product. Errors: the library refuses it.
    ///
    /// # Panics
    /// So many rows of the shape were not prepared.
    ///
    /// # Safety
    /// The operands must be as [`BlasArgs`] says, nothing else may use what is written, and all products of this value
    /// must be queued in one stream.
    pub unsafe fn launch(&self, stream: &Stream, args: &BlasArgs) -> Result<(), BlasError> {
        let &BlasArgs { shape, out, weights, x, bias, rows } = args;
        let plan = self.plans.get(&shape).expect("the shape was prepared");
        let (_, algorithm) =
            plan.algorithms.iter().find(|(most, _)| rows <= *most).expect("as many rows were prepared");
        plan.set_rows(rows)?;
        if shape.has_bias {
            plan.description.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        }
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: as the caller says; the workspace is this value's, and its products follow one another.
        let answer = unsafe {
            result::matmul(
                self.handle,
                plan.description.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                weights as *const c_void,
                plan.weights.0,
                x as *const c_void,
                plan.x.0,
                out as *const c_void,
                plan.out.0,
                out as *mut c_void,
                plan.out.0,
                algorithm,
                self.workspace.address() as *mut c_void,
                self.workspace.len(),
                stream.raw().cast(),
            )
        };
        called("cublasLtMatmul", answer)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was made here and is used no more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Plan {
    /// Says how many rows operands have.
    fn set_rows(&self, rows: u32) -> Result<(), BlasError> {
        self.x.set_columns(rows)?;
        self.out.set_columns(rows)
    }
}

/// What a product is, apart from its matrices.
#[derive(Debug)]
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    fn new(has_bias: bool, bias: sys::cudaDataType) -> Result<Self, BlasError> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let raw =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F);
        let own = Self(called("cublasLtMatmulDescCreate", raw)?);
        own.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &TRANSPOSED)?;
        if has_bias {
            own.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
            own.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias)?;
        }
        Ok(own)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), BlasError> {
        // SAFETY: the description lives, and the library copies the value.
        let answer =
            unsafe { result::set_matmul_desc_attribute(self.0, attribute, (&raw const *value).cast(), size_of::<T>()) };
        called("cublasLtMatmulDescSetAttribute", answer)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// How a matrix lies, column by column.
#[derive(Debug)]
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    fn new(number: sys::cudaDataType, rows: u32, columns: u32, stride: u32) -> Result<Self, BlasError> {
        let raw = result::create_matrix_layout(number, rows.into(), columns.into(), stride.into());
        called("cublasLtMatrixLayoutCreate", raw).map(Self)
    }

    fn set_columns(&self, columns: u32) -> Result<(), BlasError> {
        let (columns, attribute) =
            (u64::from(columns), sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_COLS);
        // SAFETY: the layout lives, and the library copies the value.
        let answer = unsafe {
            result::set_matrix_layout_attribute(self.0, attribute, (&raw const columns).cast(), size_of::<u64>())
        };
        called("cublasLtMatrixLayoutSetAttribute", answer)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// What algorithms may need.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self, BlasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let own = Self(called("cublasLtMatmulPreferenceCreate", result::create_matmul_pref())?);
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &(BLAS_WORKSPACE_BYTES as u64))?;
        // Sums of parts whose order is left to chance would differ from run to run.
        let none = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none)?;
        for attribute in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            own.set(attribute, &ALIGNMENT)?;
        }
        Ok(own)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), BlasError> {
        // SAFETY: the preference lives, and the library copies the value.
        let answer =
            unsafe { result::set_matmul_pref_attribute(self.0, attribute, (&raw const *value).cast(), size_of::<T>()) };
        called("cublasLtMatmulPreferenceSetAttribute", answer)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it was made here and is used no more.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// Names the call in its error.
fn called<T>(call: &'static str, answer: Result<T, result::CublasError>) -> Result<T, BlasError> {
    answer.map_err(|result::CublasError(status)| {
        // SAFETY: the library returns a string of its own, which stays.
        let name = unsafe { CStr::from_ptr(sys::cublasLtGetStatusName(status)) };
        BlasError::Call { call, status: name.to_string_lossy().into_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_library_the_version_and_the_package() {
        for error in [BlasError::Missing, BlasError::Old { found: 110_502 }] {
            let text = error.to_string();
            for word in ["libcublasLt", "12.3", "nvidia-cublas"] {
                assert!(text.contains(word), "{text}");
            }
        }
        assert!(BlasError::Old { found: 110_502 }.to_string().contains("11.5.2"));
    }
}
