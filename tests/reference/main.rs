//! The CPU device against Hugging Face transformers: the same logits and the same greedy tokens. `make.py` makes the
//! goldens and says what they hold.

mod cases;
mod golden;

use cases::Case;
use engine::models::config::Config;
use engine::models::{ModelFiles, read_spec};
use golden::Golden;
use tempfile::TempDir;

#[test]
fn both_spellings_of_a_config_are_the_same_model() {
    for case in Case::all() {
        let dir = TempDir::new().expect("a directory");
        case.write(dir.path());
        let golden = Golden::read(&case.name);
        let config = Config::parse(golden.config.to_string().as_bytes()).expect("it is an object");
        assert!(config.get("rope_parameters").is_some() && config.get("rope_theta").is_none(), "{}", case.name);
        let by_five = read_spec(&config, None).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let by_four = ModelFiles::load(dir.path()).unwrap_or_else(|error| panic!("{}: {error}", case.name)).spec;
        assert_eq!(by_four, by_five, "{}", case.name);
    }
}
