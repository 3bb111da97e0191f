//! Where the layers of a model lie in its KV groups.

use domain::KvLayout;

/// Returns for each model layer its KV group and its index there. `None`: a layer is in none, or in a group that the
/// layout does not hold all of.
pub(crate) fn layer_places(layout: &KvLayout) -> Option<Vec<(usize, usize)>> {
    let mut places = vec![None; layout.layers()];
    for group in 0..layout.groups.len() {
        for (index, &layer) in layout.held_layers(group).iter().enumerate() {
            *places.get_mut(usize::from(layer))? = Some((group, index));
        }
    }
    places.into_iter().collect()
}
