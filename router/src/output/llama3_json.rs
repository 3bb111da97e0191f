//! `llama3_json`: the JSON form of Llama 3.1 to 3.3. The marker is there or not.
//!
//! ```text
//! <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_time", "parameters": {}}
//! ```
//!
//! Source: chat template of meta-llama/Llama-3.1-8B-Instruct; "JSON based tool calling" in Meta's prompt format of
//! Llama 3.1.

use super::form::ToolForm;
use super::marked_json::{Form, MarkedJson};

const FORM: Form = Form { open: "<|python_tag|>", close: "", between: ";", is_certain: true, bare: &['{'] };

pub(super) const LLAMA3_JSON: ToolForm = ToolForm {
    name: "llama3_json",
    markers: &[FORM.open],
    is_in: |template| template.has(FORM.open) || template.has("\"parameters\": dictionary of argument name"),
    parser: |tools| Box::new(MarkedJson::new(&FORM, tools)),
};
