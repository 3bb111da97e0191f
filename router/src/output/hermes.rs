//! `hermes`: the form of Hermes 2 Pro and later, and of Qwen 2.5 and Qwen 3.
//!
//! ```text
//! <tool_call>
//! {"name": "get_weather", "arguments": {"city": "Paris"}}
//! </tool_call>
//! ```
//!
//! Source: README of NousResearch/Hermes-Function-Calling; chat template of Qwen/Qwen3-8B.

use super::form::ToolForm;
use super::marked_json::{Form, MarkedJson};

const FORM: Form = Form { open: "<tool_call>", close: "</tool_call>", between: "", is_certain: true, bare: &[] };

pub(super) const HERMES: ToolForm = ToolForm {
    name: "hermes",
    markers: &[FORM.open, FORM.close],
    is_in: |template| template.has(FORM.open),
    parser: |tools| Box::new(MarkedJson::new(&FORM, tools)),
};
