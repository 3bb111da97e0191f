//! Forms of reasoning, and the choice of forms.

use super::*;

#[test]
fn thinking() {
    // The model card of Qwen/Qwen3-8B: `<think>` begins the answer.
    let answer = "<think>\nOkay, the user says hi.\n</think>\n\nHello!\n";
    check_prompted("none", "think", "", answer, &[thought("Okay, the user says hi."), text("Hello!\n")].concat());
    // The chat template of deepseek-ai/DeepSeek-R1 ends the prompt in it. Some models repeat it.
    for answer in ["\nHm. \n\n</think>\n\nHello! ", "<think>Hm.</think>Hello! "] {
        check_prompted("none", "think", "<think>\n", answer, &[thought("Hm."), text("Hello! ")].concat());
    }
    check_prompted("none", "think", "<think>", "still at it ", &thought("still at it "));
    // The chat template of Qwen3 closes it in the prompt where thinking is switched off.
    check_prompted("none", "think", "<think>\n\n</think>\n\n", "\n Hello <think>", &text("\n Hello <think>"));
    // A marker later is text.
    check_prompted("none", "think", "", "a <think>b</think>", &text("a <think>b</think>"));
    check_prompted("none", "mistral", "", "[THINK]Hm.[/THINK]Hello", &[thought("Hm."), text("Hello")].concat());
    check_prompted("none", "<r> </r>", "", "<r>Hm.</r> Hello", &[thought("Hm."), text("Hello")].concat());
}

#[test]
fn reasoning_comes_before_calls() {
    let answer = "<think>\nI need <tool_call>.\n</think>\n\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";
    let wanted = [thought("I need <tool_call>."), call("get_time", "{}")].concat();
    check_prompted("hermes", "think", "", answer, &wanted);
    let answer = "Hm.</think>[get_time()]";
    check_prompted("pythonic", "think", "<think>", answer, &[thought("Hm."), call("get_time", "{}")].concat());
}

#[test]
fn harmony() {
    // Examples of OpenAI's description of harmony. The prompt ends in `<|start|>assistant`.
    check_prompted(
        "harmony",
        "harmony",
        "",
        "<|channel|>analysis<|message|>User asks: \"What is 2 + 2?\".<|end|><|start|>assistant<|channel|>final\
         <|message|>2 + 2 = 4.<|return|>",
        &[thought("User asks: \"What is 2 + 2?\"."), text("2 + 2 = 4.")].concat(),
    );
    check_prompted(
        "harmony",
        "harmony",
        "",
        "<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>assistant<|channel|>commentary\
         <|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json\
         <|message|>{\"location\":\"Tokyo\"}<|call|><|start|>assistant to=functions.get_time<|channel|>commentary json\
         <|message|>",
        &[
            thought("Need to use function get_weather."),
            text("I look."),
            call("get_weather", "{\"location\":\"Tokyo\"}"),
            call("get_time", "{}"),
        ]
        .concat(),
    );
    // The recipient may follow the role, which the prompt wrote.
    check_prompted(
        "harmony",
        "harmony",
        "",
        " to=functions.get_time<|channel|>commentary<|message|>{}<|call|>",
        &call("get_time", "{}"),
    );
    check_prompted("none", "harmony", "", "plain", &text("plain"));
    let unasked = "<|channel|>commentary to=functions.f<|message|>{}";
    check_prompted("none", "harmony", "", unasked, &text(unasked));
}

#[test]
fn forms_are_chosen_from_the_template_or_by_name() {
    let find = |template: &str| OutputForms::find("auto", "auto", &template).expect("auto is known");
    let named = |tools: &str, reasoning: &str| OutputForms::find(tools, reasoning, &"").expect("they are known");
    // What distinguishes the published templates.
    for (template, tools, reasoning) in [
        ("<think> </think> <tool_call>\\n", "hermes", "think"),
        ("<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>", "qwen3_coder", "none"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS] [THINK] [/THINK]", "mistral", "mistral"),
        ("'<｜tool▁calls▁begin｜>' content.split('</think>') + '<think>\\n'", "deepseek", "think"),
        ("\"parameters\": dictionary of argument name and its value}", "llama3_json", "none"),
        ("[func_name1(params_name1=params_value1, ...), func_name2(params)]", "pythonic", "none"),
        ("<|start|>assistant<|channel|>analysis<|message|> <|call|>", "harmony", "harmony"),
        ("{{ messages }}", "none", "none"),
    ] {
        assert_eq!(find(template), named(tools, reasoning), "{template}");
    }
    assert!(!find("").has_tools() && named("json", "none").has_tools());
    assert!(find("").parser("", Some(tools())).is_none(), "all is text");
    assert!(named("hermes", "none").parser("", None).is_none(), "nothing is offered");
    assert_eq!(named("hermes", "think").markers(false), ["</think>", "<think>"]);
    assert_eq!(named("hermes", "none").markers(true), ["</tool_call>", "<tool_call>"]);
    let error = OutputForms::find("hermse", "auto", &"").expect_err("there is none").to_string();
    assert!(error.contains("hermse") && error.contains("hermes"), "{error}");
    let error = OutputForms::find("auto", "thinking", &"").expect_err("there is none").to_string();
    assert!(error.contains("thinking") && error.contains("think,"), "{error}");
}
