//! What loading a model will take and change, before any of it is loaded: the binding of its weights to a store that
//! only counts.

#[cfg(test)]
mod tests;

use super::kernels::{Form, PANEL};
use super::model::{CpuModel, check_head_dim};
use super::packed::{groups_of, panels_of};
use crate::checkpoint::{Checkpoint, TensorView};
use crate::models::bind::LoadError;
use crate::models::decoder::Decoder;
use crate::ops::{Embedding, Linear, LinearMatrix, Norm, StoreError, WeightStore};
use crate::spec::ModelSpec;

/// Rows of a tensor whose change by repacking is measured, evenly spread: a share of the rows that costs next to
/// nothing beside loading all of them. Where a row cannot be read without the others, one tensor of a format is enough.
const SAMPLE_ROWS: usize = 4;

/// What loading a model takes and changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadPlan {
    /// Bytes of memory for the weights.
    pub bytes: u64,
    /// The weights that are kept as Q8_0 by widening them and quantising again.
    pub repacked: Vec<RepackedShare>,
}

/// Tensors of one format that are repacked as Q8_0.
#[derive(Clone, Debug, PartialEq)]
pub struct RepackedShare {
    /// What people call their format.
    pub format: String,
    /// Count of the tensors.
    pub tensors: usize,
    /// Their bytes in the file.
    pub stored_bytes: u64,
    /// Their bytes in memory.
    pub kept_bytes: u64,
    /// The largest change of a number that is possible, as a share of the largest magnitude of its 32.
    pub error_max: f32,
    /// The largest change in a sample of rows; `None`: the file's weights are not here.
    pub error: Option<f32>,
}

impl CpuModel {
    /// Works out what [`CpuModel::load`] takes and changes. Of weights only a sample of rows is read.
    ///
    /// # Errors
    ///
    /// Those of [`CpuModel::load`] but for a lack of memory: a tensor is missing, has the wrong shape or a format that
    /// is not read.
    pub fn plan(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<LoadPlan, LoadError> {
        check_head_dim(spec)?;
        let mut counting = Counting::default();
        Decoder::bind(spec, checkpoint, &mut counting, &mut |_| ())?;
        Ok(counting.plan)
    }
}

/// A store that keeps nothing.
#[derive(Default)]
struct Counting {
    plan: LoadPlan,
    handles: usize,
}

impl Counting {
    fn handle(&mut self) -> usize {
        self.handles += 1;
        self.handles - 1
    }

    fn count_repacked(&mut self, tensor: &TensorView<'_>, format: String, error_max: f32, form: Form) {
        let shares = &mut self.plan.repacked;
        let at = shares.iter().position(|share| share.format == format).unwrap_or_else(|| {
            shares.push(RepackedShare { format, tensors: 0, stored_bytes: 0, kept_bytes: 0, error_max, error: None });
            shares.len() - 1
        });
        let share = &mut shares[at];
        share.tensors += 1;
        share.stored_bytes += tensor.stored_bytes() as u64;
        share.kept_bytes += (tensor.shape[0] * form.panel_bytes(tensor.shape[1]) / PANEL) as u64;
        if tensor.is_here() && (tensor.is_by_rows() || share.error.is_none()) {
            let rows = (0..tensor.height()).step_by(tensor.height().div_ceil(SAMPLE_ROWS).max(1));
            let error = rows.map(|row| tensor.repacking_error(row)).fold(0.0, f32::max);
            share.error = Some(share.error.unwrap_or(0.0).max(error));
            tensor.let_go(0..tensor.height());
        }
    }
}

impl WeightStore for Counting {
    fn embedding(&mut self, table: &TensorView<'_>) -> Result<Embedding, StoreError> {
        self.plan.bytes += (table.height() * table.row_bytes()) as u64;
        Ok(Embedding(self.handle()))
    }

    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError> {
        let head = self.linear(&[LinearMatrix { weight: table.clone(), bias: None }])?;
        Ok((Embedding(self.handle()), head))
    }

    fn linear(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        let inputs = matrices[0].weight.shape[1];
        for (matrices, form) in groups_of(matrices) {
            let panels = panels_of(matrices);
            self.plan.bytes += (panels * form.panel_bytes(inputs)) as u64;
            if matrices.iter().any(|matrix| matrix.bias.is_some()) {
                self.plan.bytes += (panels * PANEL * size_of::<f32>()) as u64;
            }
            for LinearMatrix { weight, .. } in matrices {
                if let Some((format, error_max)) = weight.repacked().filter(|_| form == Form::of(weight.format)) {
                    self.count_repacked(weight, format, error_max, form);
                }
            }
        }
        Ok(Linear(self.handle()))
    }

    fn norm(&mut self, weight: &TensorView<'_>, _offset: f32) -> Result<Norm, StoreError> {
        self.plan.bytes += (weight.shape.iter().product::<usize>() * size_of::<f32>()) as u64;
        Ok(Norm(self.handle()))
    }
}
