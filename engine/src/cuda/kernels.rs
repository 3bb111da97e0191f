//! The kernels that a model's steps are made of.

use cuda::kernels::{
    AttentionDecode, AttentionPrefill, AttentionShape, CapLogits, CopyBlocks, Embed, Gated, HiddenSums, History,
    LoadError, Loader, Norm, Products, RopeCache, Sampling, UpdateTables, WeightForm,
};

/// Sizes of heads that attention has kernels for.
pub(super) const HEAD_DIMS: [usize; 5] = [64, 80, 96, 128, 256];
/// Query heads for each KV head, at most.
pub(super) const GROUP_MAX: usize = 16;

/// The kernels for one model.
pub(super) struct Kernels {
    pub(super) embed: Embed,
    pub(super) norm: Norm,
    /// Of each form that the model's weights have.
    products: Vec<Products>,
    pub(super) gated: Gated,
    pub(super) rope_cache: RopeCache,
    pub(super) decode: AttentionDecode,
    pub(super) prefill: AttentionPrefill,
    pub(super) cap_logits: CapLogits,
    pub(super) hidden_sums: HiddenSums,
    pub(super) history: History,
    pub(super) sampling: Sampling,
    pub(super) copy_blocks: CopyBlocks,
    pub(super) update_tables: UpdateTables,
}

impl Kernels {
    /// Loads them for heads of this shape, weights in these forms and a table in this one: compiles them, or takes them
    /// from the loader's folder. Errors: [`LoadError`].
    pub(super) fn load(
        loader: &Loader,
        shape: AttentionShape,
        forms: &[WeightForm],
        table: WeightForm,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            embed: Embed::load(loader, table)?,
            norm: Norm::load(loader)?,
            products: forms.iter().map(|&form| Products::load(loader, form)).collect::<Result<_, _>>()?,
            gated: Gated::load(loader)?,
            rope_cache: RopeCache::load(loader)?,
            decode: AttentionDecode::load(loader, shape)?,
            prefill: AttentionPrefill::load(loader, shape)?,
            cap_logits: CapLogits::load(loader)?,
            hidden_sums: HiddenSums::load(loader)?,
            history: History::load(loader)?,
            sampling: Sampling::load(loader)?,
            copy_blocks: CopyBlocks::load(loader)?,
            update_tables: UpdateTables::load(loader)?,
        })
    }

    /// Returns those of the products with weights of a form.
    ///
    /// # Panics
    /// The model has none in it.
    pub(super) fn products(&self, form: WeightForm) -> &Products {
        self.products.iter().find(|products| products.form() == form).expect("the kernels of all forms are loaded")
    }
}
