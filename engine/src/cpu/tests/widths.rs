//! Layers whose feed-forwards have different widths: as if the narrow one were as wide as the others, and zero there.

use super::rig::{Rig, tokens};
use crate::checkpoint::WEIGHTS_FILE;
use crate::cpu::{CpuModel, Isa};
use crate::models::ModelFiles;
use crate::random::RandomSpec;
use crate::spec::FeedForward;
use domain::Dtype;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

/// Width of the second layer; the first one keeps that of its shape.
const NARROW: usize = 96;

/// What a checkpoint has of a tensor.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn read(path: &Path) -> Vec<Tensor> {
    let bytes = std::fs::read(path).expect("it can be read");
    let begin = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..begin]).expect("the header is JSON");
    let number = |value: &Value| value.as_u64().expect("a number") as usize;
    let tensor = |(name, about): (String, Value)| {
        let shape = about["shape"].as_array().expect("it has one").iter().map(number).collect();
        let [from, to] = [0, 1].map(|end| begin + number(&about["data_offsets"][end]));
        Tensor { name, shape, bytes: bytes[from..to].to_vec() }
    };
    header.into_iter().filter(|(name, _)| name != "__metadata__").map(tensor).collect()
}

fn write(path: &Path, tensors: &[Tensor]) {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for Tensor { name, shape, bytes } in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": offsets }));
        data.extend_from_slice(bytes);
    }
    let mut header = serde_json::to_vec(&header).expect("it is JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    let all = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::write(path, all).expect("it can be written");
}

/// Keeps the first [`NARROW`] rows, or columns, of what the second layer's feed-forward has; `zeroed`: the others are
/// zero instead of gone.
fn narrow(tensor: &mut Tensor, zeroed: bool) {
    let is_down = tensor.name == "model.layers.1.mlp.down_proj.weight";
    let is_wide = ["gate", "up"].iter().any(|part| tensor.name == format!("model.layers.1.mlp.{part}_proj.weight"));
    let row = tensor.shape.last().map_or(0, |inputs| inputs * size_of::<f32>());
    let kept = NARROW * size_of::<f32>();
    match (is_wide, is_down, zeroed) {
        (true, _, true) => tensor.bytes[NARROW * row..].fill(0),
        (true, _, false) => {
            tensor.bytes.truncate(NARROW * row);
            tensor.shape[0] = NARROW;
        }
        (_, true, false) => {
            tensor.bytes = tensor.bytes.chunks(row).flat_map(|row| row[..kept].to_vec()).collect();
            tensor.shape[1] = NARROW;
        }
        _ => {}
    }
}

fn logits(zeroed: bool) -> Vec<f32> {
    let dir = tempfile::TempDir::new().expect("a directory");
    let spec = RandomSpec::named("llama", "tiny", 5, Some(Dtype::F32)).expect("family and shape have these names");
    spec.write(dir.path(), &mut |_, _| {}).expect("it is written");
    let path = dir.path().join(WEIGHTS_FILE);
    let mut tensors = read(&path);
    tensors.iter_mut().for_each(|tensor| narrow(tensor, zeroed));
    write(&path, &tensors);
    let ModelFiles { mut spec, checkpoint, .. } = ModelFiles::load(dir.path()).expect("it can be read");
    if !zeroed {
        spec.feed_forward[1] = FeedForward::Dense { width: NARROW };
    }
    let model = CpuModel::load(spec, &checkpoint, &mut |_| {}).expect("it loads");
    let mut rig = Rig::new(Arc::new(model), 16, 2, Isa::best());
    let (output, logits) = rig.run(vec![rig.span(0, 0, &tokens(0, 40))]);
    output.sampled.expect("the step succeeds");
    logits.into_iter().flat_map(|(_, logits)| logits).collect()
}

#[test]
fn each_layer_has_the_feed_forward_that_its_spec_says() {
    let (narrow, zeroed) = (logits(false), logits(true));
    assert!(!narrow.is_empty() && narrow.len() == zeroed.len());
    for (narrow, zeroed) in narrow.into_iter().zip(zeroed) {
        assert!((narrow - zeroed).abs() <= 1e-4, "{narrow} and {zeroed}");
    }
}
