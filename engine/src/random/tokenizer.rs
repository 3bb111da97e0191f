//! A byte-level tokenizer for any vocabulary, in the files that Hugging Face tokenizers read: one token per byte, a few
//! special tokens, and filler words that text never becomes but a random model says.

use domain::Token;
use serde_json::{Map, Value, json};

/// Tokens `0..BYTES` are the bytes.
const BYTES: Token = 256;
/// Special tokens, from id [`BYTES`] on.
const SPECIAL: [&str; 6] = ["<|begin|>", "<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"];
/// Begins a text.
pub(super) const BOS: Token = BYTES;
/// Ends a turn.
pub(super) const EOS: Token = BYTES + 1;
/// Fills batches, in other software.
pub(super) const PAD: Token = BYTES + 2;

const CHAT_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + \
                             message['content'] + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}\
                             {{ '<|assistant|>' }}{% endif %}";

/// Returns the files beside the weights and config.json, with their names.
pub(super) fn files(vocab: usize, context: usize) -> [(&'static str, Value); 3] {
    let generation = json!({"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD});
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[2],
        "clean_up_tokenization_spaces": false,
        "model_max_length": context,
        "chat_template": CHAT_TEMPLATE,
    });
    [("generation_config.json", generation), ("tokenizer_config.json", config), ("tokenizer.json", tokenizer(vocab))]
}

fn tokenizer(vocab: usize) -> Value {
    let special = || (BYTES..).zip(SPECIAL);
    let bytes = (0..=u8::MAX).map(|byte| (byte_char(byte).to_string(), Value::from(byte)));
    let fillers = (BYTES as usize + SPECIAL.len()..vocab).map(|id| (format!("Ġw{id}"), Value::from(id)));
    let words: Map<String, Value> =
        bytes.chain(special().map(|(id, text)| (text.to_owned(), Value::from(id)))).chain(fillers).collect();
    let added: Vec<Value> = special()
        .map(|(id, text)| {
            json!({
                "id": id, "content": text, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": SPECIAL[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                {"SpecialToken": {"id": SPECIAL[0], "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {SPECIAL[0]: {"id": SPECIAL[0], "ids": [BOS], "tokens": [SPECIAL[0]]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": words,
            "merges": [],
        },
    })
}

/// The printable character that stands for a byte in byte-level vocabularies (GPT-2's `bytes_to_unicode`): the byte
/// itself where it is printable in Latin-1, else the next free character from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(0x100 + before).expect("there are fewer than 256 of them")
}
