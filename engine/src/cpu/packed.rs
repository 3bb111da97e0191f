//! Linear layers whose weights are packed in panels; see [`super::kernels::Form`] for what a panel is.

use super::cpu_topology::{Affinity, Host};
use super::kernels::{Form, PANEL, Start};
use super::memory::{Address, Memory, Slabs};
use super::numa::settle;
use crate::checkpoint::{LET_GO_BYTES, TensorView};
use crate::ops::{LinearMatrix, StoreError};
use crate::quant::WeightFormat;
use std::borrow::Cow;
use std::ops::Range;
use std::thread;

/// A linear layer: the outputs of its groups, one group after the other.
pub(super) struct PackedLinear {
    groups: Vec<PanelGroup>,
    pub(super) inputs: usize,
}

/// Outputs whose weights have one form.
struct PanelGroup {
    form: Form,
    panels: Memory,
    /// Padded to whole panels; empty: none.
    bias: Vec<f32>,
    outputs: usize,
}

/// A panel of a layer.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// Form of its weights.
    pub(super) form: Form,
    /// The weights.
    pub(super) weights: *const u8,
    /// Its biases.
    pub(super) start: Start,
}

impl PackedLinear {
    /// Packs the outputs of all matrices, in the forms of their number formats. A panel has one form: where matrices
    /// differ in it and a panel would have outputs of two, the layer is kept in f32, which loses nothing. On a host
    /// with several memory nodes a panel lies in the node whose threads read it.
    pub(super) fn pack(matrices: &[LinearMatrix<'_>], slabs: &mut Slabs, host: &Host) -> Result<Self, StoreError> {
        let inputs = matrices[0].weight.shape[1];
        let all = panels_of(matrices);
        let (mut groups, mut first) = (Vec::new(), 0);
        for (matrices, form) in groups_of(matrices) {
            let group = PanelGroup::pack(matrices, form, inputs, slabs, &|panel| host.in_node(first + panel, all))?;
            first += group.panels();
            groups.push(group);
        }
        Ok(Self { groups, inputs })
    }

    /// Panels of 64 outputs.
    pub(super) fn panels(&self) -> usize {
        self.groups.iter().map(PanelGroup::panels).sum()
    }

    /// Outputs.
    pub(super) fn outputs(&self) -> usize {
        self.groups.iter().map(|group| group.outputs).sum()
    }

    /// Returns the bytes of all biases.
    pub(super) fn bias_bytes(&self) -> usize {
        self.groups.iter().map(|group| size_of_val(&group.bias[..])).sum()
    }

    /// Returns the bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().map(|group| group.panels() * group.form.panel_bytes(self.inputs)).sum()
    }

    /// Panel `index`.
    pub(super) fn panel(&self, mut index: usize) -> Panel {
        for group in &self.groups {
            if index < group.panels() {
                return group.panel(index, self.inputs);
            }
            index -= group.panels();
        }
        panic!("the layer has {} panels", self.panels());
    }

    /// Returns which consecutive panels take the same activations, each with a form that these are prepared for.
    pub(super) fn passes(&self) -> impl Iterator<Item = (Form, Range<usize>)> + '_ {
        let passes = self.groups.chunk_by(|one, next| one.form.prepared() == next.form.prepared());
        passes.scan(0, |first, groups| {
            let panels = *first..*first + groups.iter().map(PanelGroup::panels).sum::<usize>();
            *first = panels.end;
            Some((groups[0].form, panels))
        })
    }

    /// Returns the bytes that a row of activations takes, at most, when it is prepared.
    pub(super) fn prepared_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.form.prepared_bytes(self.inputs)).max().unwrap_or(0)
    }

    /// The weights of one output, widened.
    ///
    /// # Safety
    /// The layer has this output; as many numbers as it has inputs can be written behind `out`, and nobody else
    /// uses it.
    pub(super) unsafe fn widen(&self, output: usize, out: *mut f32) {
        let panel = self.panel(output / PANEL);
        // SAFETY: as the caller says.
        unsafe { panel.form.widen(panel.weights, self.inputs, output % PANEL, out) };
    }
}

impl PanelGroup {
    /// `place`: where a panel is touched first.
    fn pack(
        matrices: &[LinearMatrix<'_>],
        form: Form,
        inputs: usize,
        slabs: &mut Slabs,
        place: &dyn Fn(usize) -> Affinity,
    ) -> Result<Self, StoreError> {
        let outputs = outputs_of(matrices);
        let (panels, panel_bytes) = (outputs.div_ceil(PANEL), form.panel_bytes(inputs));
        let bytes = panels * panel_bytes;
        let memory = slabs.part(bytes).map_err(|source| StoreError { bytes, source })?;

        // Every thread packs panels of its own: consecutive ones, as many as the others.
        let rows: Vec<OutputRow<'_>> = matrices.iter().flat_map(|matrix| OutputRow::all(&matrix.weight)).collect();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(panels);
        let run_panels = (LET_GO_BYTES / (matrices[0].weight.row_bytes() * PANEL)).max(1);
        let base = Address::new(memory.as_ptr());
        thread::scope(|scope| {
            for (thread, rows) in rows.chunks(panels.div_ceil(threads) * PANEL).enumerate() {
                let place = place(thread * panels.div_ceil(threads));
                scope.spawn(move || {
                    settle(&place);
                    for (index, run) in rows.chunks(run_panels * PANEL).enumerate() {
                        let first = thread * panels.div_ceil(threads) + index * run_panels;
                        for (panel, rows) in (first..).zip(run.chunks(PANEL)) {
                            // SAFETY: the panel is inside the memory, and only this thread writes it.
                            unsafe { pack_panel(rows, form, inputs, base.add(panel * panel_bytes)) };
                        }
                        OutputRow::by_matrix(run).for_each(|(matrix, rows)| matrix.let_go(rows));
                    }
                });
            }
        });
        matrices.iter().for_each(|matrix| matrix.weight.let_go(0..matrix.weight.shape[0]));

        let mut bias = Vec::new();
        if matrices.iter().any(|matrix| matrix.bias.is_some()) {
            for matrix in matrices {
                match &matrix.bias {
                    Some(tensor) => bias.extend(tensor.widened(0..tensor.height())),
                    None => bias.resize(bias.len() + matrix.weight.shape[0], 0.0),
                }
            }
            bias.resize(panels * PANEL, 0.0);
        }
        Ok(Self { form, panels: memory, bias, outputs })
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    fn panel(&self, index: usize, inputs: usize) -> Panel {
        assert!(index < self.panels());
        // SAFETY: the memory has this many panels.
        let weights = unsafe { self.panels.as_ptr().add(index * self.form.panel_bytes(inputs)) };
        let bias = self.bias.get(index * PANEL..).filter(|bias| !bias.is_empty());
        Panel { form: self.form, weights, start: bias.map_or(Start::Zero, |bias| Start::Bias(bias.as_ptr())) }
    }
}

/// Returns the groups that a layer of these matrices has, each with the form of its weights; see
/// [`PackedLinear::pack`].
pub(super) fn groups_of<'m, 'a>(matrices: &'m [LinearMatrix<'a>]) -> Vec<(&'m [LinearMatrix<'a>], Form)> {
    let form = |matrix: &LinearMatrix<'_>| Form::of(matrix.weight.format);
    let is_whole = |matrices: &[LinearMatrix<'_>]| outputs_of(matrices).is_multiple_of(PANEL);
    let groups: Vec<_> =
        matrices.chunk_by(|one, next| form(one) == form(next)).map(|group| (group, form(&group[0]))).collect();
    let as_they_are = groups[..groups.len() - 1].iter().all(|(matrices, _)| is_whole(matrices));
    if as_they_are { groups } else { vec![(matrices, Form::F32)] }
}

/// Returns how many panels the outputs of these matrices fill.
pub(super) fn panels_of(matrices: &[LinearMatrix<'_>]) -> usize {
    outputs_of(matrices).div_ceil(PANEL)
}

fn outputs_of(matrices: &[LinearMatrix<'_>]) -> usize {
    matrices.iter().map(|matrix| matrix.weight.shape[0]).sum()
}

/// One output's weights in the checkpoint: a matrix, and which of its rows.
#[derive(Clone, Copy)]
struct OutputRow<'a> {
    matrix: &'a TensorView<'a>,
    index: usize,
}

impl<'a> OutputRow<'a> {
    /// Returns the rows of a matrix.
    fn all(matrix: &'a TensorView<'a>) -> impl Iterator<Item = OutputRow<'a>> {
        (0..matrix.height()).map(move |index| OutputRow { matrix, index })
    }

    /// Returns the matrices that consecutive rows are of, each with which of its rows these are.
    fn by_matrix(rows: &[Self]) -> impl Iterator<Item = (&'a TensorView<'a>, Range<usize>)> {
        rows.chunk_by(|one, next| std::ptr::eq(one.matrix, next.matrix))
            .map(|rows| (rows[0].matrix, rows[0].index..rows[rows.len() - 1].index + 1))
    }
}

/// Packs up to 64 outputs in this form: that of the rows, or f32.
///
/// # Safety
/// A panel can be written behind `to`, which nobody else uses.
unsafe fn pack_panel(rows: &[OutputRow<'_>], form: Form, inputs: usize, to: *mut u8) {
    let as_they_are = rows.iter().all(|row| Form::of(row.matrix.format) == form);
    let mut packed: Vec<Cow<'_, [u8]>> = Vec::with_capacity(rows.len());
    for (matrix, rows) in OutputRow::by_matrix(rows) {
        let widened = |row: &[f32]| Cow::Owned(row.iter().copied().flat_map(f32::to_le_bytes).collect());
        match matrix.format {
            WeightFormat::Repacked(format) if as_they_are => {
                packed.extend(matrix.rows(rows).iter().map(|row| Cow::Owned(format.repack(row))));
            }
            _ if as_they_are => packed.extend(matrix.rows(rows)),
            _ => packed.extend(matrix.widened(rows).chunks_exact(inputs).map(widened)),
        }
    }
    let panel: Vec<&[u8]> = packed.iter().map(|row| &row[..]).collect();
    // SAFETY: as the caller says.
    unsafe { form.pack(&panel, inputs, to) };
}
