//! The project's own tool.
mod proto;
fn main() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (path, code) in proto::generate(root).unwrap() {
        std::fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), code).unwrap();
    }
}
