//! The operations that a model's forward pass is made of, between the model definitions and the devices.
//!
//! A definition binds its weights to handles once ([`WeightStore`]), plans its activations once ([`ArenaPlan`])
//! and then says, for every step, which operation reads and writes which handle ([`Ops`]). Which tokens, positions
//! and blocks the step is about is the device's to know: it took the plan.
//!
//! What is deliberately absent: memory. A handle is a number, so that the same definition runs on a device whose
//! buffers the host cannot see, and a device may pack, fuse and place weights and activations as it likes.

use crate::checkpoint::TensorView;

/// Embedding table of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding(pub usize);

/// Weights (and bias) of a linear layer of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear(pub usize);

/// Weights of an RMS norm of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm(pub usize);

/// An activation buffer: index into the [`ArenaPlan`] it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(pub usize);

/// What the rows of a buffer stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// One row per input token of the step.
    Inputs,
    /// One row per input token of a micro-batch. What they hold is gone when another micro-batch begins.
    MicroBatch,
    /// One row per input row whose logits are wanted, in their order.
    Logits,
}

/// Shape of an activation buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShape {
    /// What its rows stand for.
    pub axis: Axis,
    /// Numbers per row.
    pub width: usize,
}

/// The buffers of a forward pass. A device allocates them once, for its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaPlan {
    shapes: Vec<BufferShape>,
}

impl ArenaPlan {
    /// Adds a buffer of rows of `width` numbers.
    pub fn add(&mut self, axis: Axis, width: usize) -> Buffer {
        self.shapes.push(BufferShape { axis, width });
        Buffer(self.shapes.len() - 1)
    }

    /// Returns the shapes; a [`Buffer`] is an index into them.
    pub fn shapes(&self) -> &[BufferShape] {
        &self.shapes
    }
}

/// One matrix of a linear layer, `[outputs, inputs]`, with its bias `[outputs]`.
#[derive(Clone, Debug)]
pub struct LinearMatrix<'a> {
    /// The matrix.
    pub weight: TensorView<'a>,
    /// The bias.
    pub bias: Option<TensorView<'a>>,
}

/// The device's memory does not hold the weights.
#[derive(Debug, thiserror::Error)]
#[error("no memory for {bytes} bytes of weights")]
pub struct StoreError {
    /// Bytes asked for.
    pub bytes: usize,
    /// The system's answer.
    #[source]
    pub source: std::io::Error,
}

/// Where a definition puts its weights while it loads: the device's side of binding. Shapes are checked before.
pub trait WeightStore {
    /// An embedding table, `[vocabulary, hidden]`, that is nothing else.
    fn embedding(&mut self, table: &TensorView<'_>) -> Result<Embedding, StoreError>;

    /// An embedding table that is the output projection as well.
    fn tied_embedding(&mut self, table: &TensorView<'_>) -> Result<(Embedding, Linear), StoreError>;

    /// A linear layer whose outputs are those of `matrices`, one after the other. All have the same inputs.
    fn linear(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError>;

    /// Takes gate and up projections, fused in this order: two matrices, or one. A device may lay them out so that
    /// their outputs come in another order, if its feed-forward knows it.
    fn gate_up(&mut self, matrices: &[LinearMatrix<'_>]) -> Result<Linear, StoreError> {
        self.linear(matrices)
    }

    /// Weights of a norm, `[width]`, with `offset` added to each.
    fn norm(&mut self, weight: &TensorView<'_>, offset: f32) -> Result<Norm, StoreError>;
}

/// An operation failed; the step fails with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpsError(pub String);

/// Result of an operation.
pub type OpsResult = Result<(), OpsError>;

/// Operands of [`Ops::rms_norm`] and [`Ops::last_norm`]: `residual += add * residual_scale; out = norm(residual) *
/// weight`.
#[derive(Clone, Copy, Debug)]
pub struct NormArgs {
    /// The residual stream.
    pub residual: Buffer,
    /// Added to the residual stream first.
    pub add: Option<Buffer>,
    /// The weights; `None`: nothing is normed, `out` is the residual stream.
    pub weight: Option<Norm>,
    /// The result; may be `residual` or `add`.
    pub out: Buffer,
}

/// Operands of [`Ops::norm_qkv_rope_cache`].
#[derive(Clone, Copy, Debug)]
pub struct QkvArgs {
    /// The model layer.
    pub layer: u16,
    /// The norm before the projection.
    pub norm: NormArgs,
    /// Query, key and value projections, fused in this order.
    pub projection: Linear,
    /// Norms of queries and of keys.
    pub head_norms: Option<(Norm, Norm)>,
    /// Their result: rows of queries, keys and values.
    pub qkv: Buffer,
    /// The result: rows of queries.
    pub queries: Buffer,
}

/// Operands of [`Ops::mlp`].
#[derive(Clone, Copy, Debug)]
pub struct MlpArgs {
    /// The layer.
    pub layer: u16,
    /// The norm before it.
    pub norm: NormArgs,
    /// Gate and up projections, fused in this order.
    pub gate_up: Linear,
    /// Their result: rows of gates, then ups; then what becomes of the gates.
    pub gate_up_out: Buffer,
    /// The down projection.
    pub down: Linear,
    /// The result.
    pub out: Buffer,
}

/// The operations on the step that the device holds. They run in the order of the calls; a device may only queue
/// them. A device that has little room for activations cuts a step's input rows into micro-batches: an operation
/// is about the rows of the micro-batch that was begun last, but for those on the axis of logits.
///
/// The constants in them (scales, caps, epsilon, windows, frequencies, the activation) are those of the
/// [`ModelSpec`](crate::spec::ModelSpec).
///
/// Sampling is the same function of the logits on every device, bit for bit ([`sampling`](crate::sampling)). Whether
/// the logits of a row depend on its own sequence alone is what a device declares
/// ([`Device::batch_invariant`](crate::device::Device::batch_invariant)).
pub trait Ops {
    /// Micro-batches of the step, at least one.
    fn micro_batches(&self) -> usize;

    /// Begins a micro-batch: operations are about its rows from now on.
    fn begin_micro_batch(&mut self, index: usize);

    /// Rows of the table for the input tokens, times the embedding's scale.
    fn embed(&mut self, table: Embedding, out: Buffer) -> OpsResult;

    /// RMS norm, after adding to the residual stream.
    fn rms_norm(&mut self, args: NormArgs) -> OpsResult;

    /// `out = x * weights^T + bias`, for all rows of the axis of `x`; of a row, the numbers that the layer takes.
    fn linear(&mut self, weights: Linear, x: Buffer, out: Buffer) -> OpsResult;

    /// RMS norm of queries (first norm) and keys (second), in place: of every run of numbers as long as the weights.
    fn head_norm(&mut self, query: Norm, key: Norm, qkv: Buffer) -> OpsResult;

    /// Rotary embedding by the rows' positions; then queries into `queries`, keys and values into the cache. The
    /// positions of a block that no token has yet are zeroed when its first position is written.
    fn rope_cache(&mut self, layer: u16, qkv: Buffer, queries: Buffer) -> OpsResult;

    /// Keys and values of this layer are written for all rows of all micro-batches: raises the progress word.
    fn kv_written(&mut self, layer: u16) -> OpsResult;

    /// Causal attention of the queries over the cache, within the layer's window. The result takes their place.
    fn attention(&mut self, layer: u16, queries: Buffer) -> OpsResult;

    /// `gate = activation(gate) * up`.
    fn gated(&mut self, layer: u16, gate_up: Buffer) -> OpsResult;

    /// Sum over the ranks of a tensor-parallel group, in place; nothing on a single rank.
    fn all_reduce(&mut self, x: Buffer) -> OpsResult;

    /// The last [`Ops::rms_norm`], of the rows of the micro-batch of which something is wanted. `out` has the axis of
    /// logits, and gets the rows whose logits are. `scratch` has that of micro-batches, and may be what is added: rows
    /// whose hidden states are wanted are normed into it and added up.
    fn last_norm(&mut self, args: NormArgs, scratch: Buffer) -> OpsResult;

    /// Logits of all rows whose logits are wanted, scaled and capped.
    fn logits(&mut self, head: Linear, x: Buffer, out: Buffer) -> OpsResult;

    /// Samples and scores what the plan asks for. It waits for masks.
    fn sample(&mut self, logits: Buffer) -> OpsResult;

    /// Everything before a layer's attention, except the announcement.
    fn norm_qkv_rope_cache(&mut self, args: QkvArgs) -> OpsResult {
        self.rms_norm(args.norm)?;
        self.linear(args.projection, args.norm.out, args.qkv)?;
        if let Some((query, key)) = args.head_norms {
            self.head_norm(query, key, args.qkv)?;
        }
        self.rope_cache(args.layer, args.qkv, args.queries)
    }

    /// Returns the feed-forward, from its norm to the sum over the ranks.
    fn mlp(&mut self, args: MlpArgs) -> OpsResult {
        self.rms_norm(args.norm)?;
        self.linear(args.gate_up, args.norm.out, args.gate_up_out)?;
        self.gated(args.layer, args.gate_up_out)?;
        self.linear(args.down, args.gate_up_out, args.out)?;
        self.all_reduce(args.out)
    }
}
