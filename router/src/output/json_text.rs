//! `json`: calls as JSON without markers of a model's own, one object or a list. A call begins a line, or a block of
//! code that is marked as JSON, and names a tool that is offered.
//!
//! ```text
//! [{"name": "get_weather", "arguments": {"city": "Paris"}}]
//! ```

use super::form::ToolForm;
use super::marked_json::{Form, MarkedJson};

const FORM: Form = Form { open: "```json", close: "```", between: "", is_certain: false, bare: &['{', '['] };

pub(super) const JSON: ToolForm = ToolForm {
    name: "json",
    markers: &[],
    // Whoever wants it asks for it by name: a template that says nothing of tools has no form.
    is_in: |_| false,
    parser: |tools| Box::new(MarkedJson::new(&FORM, tools)),
};
