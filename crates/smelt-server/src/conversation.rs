//! From a conversation to a prompt, and to how its answer is read and held.

use std::sync::Arc;

use serde_json::{Map, Value};
use smelt_api::{ApiError, ChatMessage, Code, Effort, Reasoning, Role, Structure, ToolChoice, Tools};
use smelt_engine::chat::{Message, RenderOptions};
use smelt_engine::tokenizer::answer::{Held, ReaderOptions, ThinkTags, Tool, ToolSet};
use smelt_engine::tokenizer::chat::{Abilities, ChatTemplate, Rendered, TemplateError};
use smelt_engine::{Calls, Grammar, Model};

use crate::daemon::{Requirement, Thoughts};
use crate::models::{Defaults, OpenModel};
use crate::prompt::beside;
use crate::structure::{refusal, requirement};

/// How a conversation becomes a prompt.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChatPrompt {
    pub(crate) messages: Vec<ChatMessage>,
    pub(crate) tools: Tools,
    pub(crate) reasoning: Reasoning,
    /// What the answer must look like.
    pub(crate) structure: Option<Structure>,
    /// Variables for the template.
    pub(crate) kwargs: Map<String, Value>,
    /// Go on in the last message, which is the assistant's.
    pub(crate) continues: bool,
    /// End with the message, and not where an answer begins.
    pub(crate) closed: bool,
}

/// A conversation that is ready to be answered.
pub(crate) struct Prepared {
    /// The prompt as the template has it. A user's text in it may look like a control token, and is none.
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    /// How the answer is read.
    pub(crate) reading: ReaderOptions,
    /// The control tokens that reading needs to see.
    pub(crate) shown: Arc<[u32]>,
    /// What the answer must look like.
    pub(crate) constraint: Option<Requirement>,
}

/// Variables that are the template's own.
const RESERVED: [&str; 6] =
    ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"];
/// Variables by which templates switch thinking on and off.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
const EFFORT: &str = "reasoning_effort";

/// An id of a call, by which its result will be known.
pub(crate) fn call_id(prefix: &str) -> String {
    let random = std::iter::repeat_with(fastrand::alphanumeric).take(24);
    prefix.chars().chain(random).collect()
}

/// Makes a conversation ready. What a message says never becomes a control token.
pub(crate) async fn prepare(model: &Arc<OpenModel>, prompt: ChatPrompt) -> Result<Prepared, ApiError> {
    let model = model.clone();
    beside(move || prepare_now(&model, prompt)).await
}

fn prepare_now(open: &OpenModel, mut prompt: ChatPrompt) -> Result<Prepared, ApiError> {
    let model = open.model();
    let template = model.template().map_err(|e| ApiError::new(Code::Internal, e.to_string()))?;
    let abilities = template.abilities();
    check_reasoning(template, prompt.reasoning)?;
    settle_reasoning(&mut prompt, template, &open.source.defaults);
    let options = options(&mut prompt, template)?;
    let begun = if prompt.continues { prompt.messages.pop() } else { None };
    let messages = to_template(prompt.messages, template.source().contains("developer"));
    let mut rendered = template.render_chat(&messages, &options).map_err(|e| refused(&e))?;
    let is_open = settle_thinking(&mut rendered, abilities.thinking, prompt.reasoning, begun.as_ref());
    if let Some(begun) = &begun {
        // What the answer begins with is text like any other.
        push_user(&mut rendered, begun.content.trim_end());
    }
    let tools = Arc::new(tool_set(&prompt.tools));
    let tokens = budget(template, prompt.reasoning);
    let thoughts = abilities.thinking.map(|tags| Thoughts {
        tags,
        is_open,
        // An answer that has begun has no thoughts any more, and one that is to have none is held from its beginning.
        are_free: begun.is_none() && tokens != Some(0),
        budget: tokens,
    });
    let structure = prompt.structure.map(requirement).transpose()?;
    let (held, required) = match demanded_call(model, abilities, &tools, &prompt.tools)? {
        // Where there is no content, there is none to be held.
        Some(call) => (Held::OnlyCalls, Some(call)),
        None => possible_calls(model, abilities, &tools, &prompt.tools, structure)?,
    };
    let constraint = match required {
        Some(requirement) => Some(Requirement { thoughts, ..requirement }),
        None => thoughts.filter(|thoughts| thoughts.budget.is_some()).map(|thoughts| Requirement {
            param: prompt.reasoning.param.to_owned(),
            thoughts: Some(thoughts),
            ..Requirement::default()
        }),
    };
    let calls = (!tools.tools().is_empty()).then_some((abilities.calls, tools));
    Ok(Prepared {
        tokens: model.tokenizer().encode_rendered(&rendered),
        text: rendered.text,
        shown: open.marks(calls.is_some()),
        reading: ReaderOptions {
            thinking: abilities.thinking,
            thinking_is_open: is_open,
            thinking_is_content: prompt.reasoning.in_content,
            calls,
            held,
            one_call: !prompt.tools.parallel,
        },
        constraint,
    })
}

/// Holds the answer to calls, where a call is demanded.
///
/// # Errors
/// Which tool's schema can't be enforced, and why.
fn demanded_call(
    model: &Model,
    abilities: &Abilities,
    set: &ToolSet,
    tools: &Tools,
) -> Result<Option<Requirement>, ApiError> {
    let one_call = match tools.choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(None),
        ToolChoice::Required => !tools.parallel,
        ToolChoice::Named(_) => true,
    };
    for tool in set.tools() {
        let schema = Grammar::from_json_schema(&tool.parameters);
        let i = tools.list.iter().position(|t| t.name == tool.name).unwrap_or(0);
        schema.map_err(|error| refusal(format!("tools[{i}]"), &error))?;
    }
    let param = "tools".to_owned();
    match Grammar::calls(&abilities.calls.shape(set, one_call), model.tokenizer()) {
        Ok(grammar) => Ok(Some(Requirement { param, grammar: Some(grammar), ..Requirement::default() })),
        Err(error) => Err(refusal(param, &error)),
    }
}

/// Holds the calls that a model may make, and its content to `structure`. Where content is free, and the tools are too many
/// for a grammar or the vocabulary takes none, calls are as the model makes them.
///
/// # Errors
/// That there are too many tools beside a structure.
fn possible_calls(
    model: &Model,
    abilities: &Abilities,
    set: &ToolSet,
    tools: &Tools,
    structure: Option<Requirement>,
) -> Result<(Held, Option<Requirement>), ApiError> {
    if set.tools().is_empty() || model.tokenizer().eog_ids().is_empty() {
        return Ok((Held::Free, structure));
    }
    let alone = structure.is_some();
    let calls = Calls::new(abilities.calls, set, (!tools.parallel, alone), model.tokenizer());
    let (held, param) = (if alone { Held::CallsOrContent } else { Held::Calls }, "tools".to_owned());
    match calls {
        Ok(calls) => {
            let requirement = structure.unwrap_or_else(|| Requirement { param, ..Requirement::default() });
            Ok((held, Some(Requirement { calls: Some(calls), ..requirement })))
        }
        Err(error) if alone => Err(refusal(param, &error)),
        Err(_) => Ok((Held::Free, None)),
    }
}

/// The tools that may be called.
fn tool_set(tools: &Tools) -> ToolSet {
    let is_named = |name: &str| !matches!(&tools.choice, ToolChoice::Named(only) if only != name);
    let named = tools.offered().iter().filter(|tool| is_named(&tool.name));
    ToolSet::new(named.map(|t| Tool { name: t.name.clone(), parameters: t.parameters.clone() }).collect())
}

/// Refuses what a model without reasoning can't do.
fn check_reasoning(template: &ChatTemplate, reasoning: Reasoning) -> Result<(), ApiError> {
    let asks = reasoning.budget.is_some() || reasoning.effort.is_some_and(|effort| effort != Effort::None);
    if asks && !reasoning.is_permission && !reasons(template) {
        return Err(ApiError::unsupported(reasoning.param, "the model's chat template knows no reasoning"));
    }
    Ok(())
}

/// Whether a model with this template may think before it answers.
fn reasons(template: &ChatTemplate) -> bool {
    template.abilities().thinking.is_some()
        || SWITCHES[..1].iter().chain([&EFFORT]).any(|name| template.source().contains(name))
}

/// Puts what the operator says of reasoning in the place of what a request leaves open.
fn settle_reasoning(prompt: &mut ChatPrompt, template: &ChatTemplate, defaults: &Defaults) {
    let Reasoning { effort, budget, .. } = &mut prompt.reasoning;
    if effort.is_some() || budget.is_some() || !reasons(template) {
        return;
    }
    *budget = defaults.thinking_budget;
    let is_switched = SWITCHES.iter().chain([&EFFORT]).any(|name| prompt.kwargs.contains_key(*name));
    if !is_switched {
        *effort = defaults.effort;
    }
}

/// The tokens of thought that a request allows; `None` for any number. Where the template itself minds the effort, it is
/// left to it.
fn budget(template: &ChatTemplate, reasoning: Reasoning) -> Option<usize> {
    let effort = reasoning.effort.filter(|e| *e == Effort::None || !template.source().contains(EFFORT));
    let of_effort = effort.and_then(Effort::budget);
    match (reasoning.budget, of_effort) {
        (Some(tokens), Some(most)) => Some(tokens.min(most)),
        (tokens, most) => tokens.or(most),
    }
}

/// What the template is told beside the messages.
fn options(prompt: &mut ChatPrompt, template: &ChatTemplate) -> Result<RenderOptions, ApiError> {
    let mut extra = std::mem::take(&mut prompt.kwargs);
    if let Some(name) = RESERVED.iter().find(|name| extra.contains_key(**name)) {
        return Err(ApiError::value(format!("chat_template_kwargs.{name}"), "is set by the server"));
    }
    let source = template.source();
    let mut set = |name: &str, value: Value| {
        if source.contains(name) && !extra.contains_key(name) {
            extra.insert(name.to_owned(), value);
        }
    };
    let switch = match (prompt.reasoning.effort, prompt.reasoning.budget) {
        (Some(Effort::None), _) | (None, Some(0)) => Some(false),
        (Some(_), _) | (None, Some(_)) => Some(true),
        (None, None) => None,
    };
    if let Some(on) = switch {
        SWITCHES.iter().for_each(|name| set(name, on.into()));
    }
    if let Some(effort) = prompt.reasoning.effort.filter(|effort| *effort != Effort::None) {
        // Templates know these three.
        set(EFFORT, effort.clamp(Effort::Low, Effort::High).name().into());
    }
    if let Some(tokens) = prompt.reasoning.budget {
        set("thinking_budget", tokens.into());
    }
    let tools = prompt.tools.offered();
    let options = RenderOptions {
        tools: (!tools.is_empty()).then(|| tools.iter().map(smelt_api::Tool::to_json).collect()),
        add_generation_prompt: !prompt.closed,
        extra,
        ..RenderOptions::default()
    };
    Ok(options.at(jiff::Zoned::now().datetime()))
}

/// Closes the think block that the template has opened, where there is to be no thought, or the answer has begun. Whether
/// it is still open.
fn settle_thinking(
    rendered: &mut Rendered,
    tags: Option<&ThinkTags>,
    reasoning: Reasoning,
    begun: Option<&ChatMessage>,
) -> bool {
    let Some(tags) = tags.filter(|tags| ends_open(rendered, tags)) else { return false };
    if begun.is_none() && reasoning.effort != Some(Effort::None) && reasoning.budget != Some(0) {
        return true;
    }
    if let Some(thought) = begun.and_then(|begun| begun.reasoning.as_deref()) {
        push_user(rendered, thought.trim_end());
    }
    rendered.text.push_str(&format!("\n{}\n\n", tags.close));
    false
}

/// Whether the template, and not a user, has opened a think block at the end.
fn ends_open(rendered: &Rendered, tags: &ThinkTags) -> bool {
    let user = rendered.user.last().map_or(0, |range| range.end);
    tags.is_open(&rendered.text[user..])
}

fn push_user(rendered: &mut Rendered, text: &str) {
    let start = rendered.text.len();
    rendered.text.push_str(text);
    rendered.user.extend((!text.is_empty()).then_some(start..rendered.text.len()));
}

/// Messages as a template reads them. Few know the role `developer`, and none more than one message of instructions at
/// the beginning.
fn to_template(messages: Vec<ChatMessage>, knows_developer: bool) -> Vec<Message> {
    let mut merged: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.role == Role::Developer && !knows_developer {
            message.role = Role::System;
        }
        match merged.as_mut_slice() {
            [first] if first.role == Role::System && message.role == Role::System => {
                let gap = if first.content.is_empty() || message.content.is_empty() { "" } else { "\n\n" };
                first.content = [first.content.as_str(), gap, message.content.as_str()].concat();
            }
            _ => merged.push(message),
        }
    }
    merged.into_iter().map(to_message).collect()
}

fn to_message(message: ChatMessage) -> Message {
    let mut out = Message::new(message.role.name(), message.content);
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.fields_mut().insert(name.into(), value);
        }
    };
    set("name", message.name.map(Value::from));
    set("reasoning_content", message.reasoning.map(Value::from));
    set("tool_call_id", message.tool_call_id.map(Value::from));
    let call = |call: smelt_api::ToolCall| {
        let function = serde_json::json!({"name": call.name, "arguments": call.arguments});
        serde_json::json!({"id": call.id, "type": "function", "function": function})
    };
    let calls: Vec<Value> = message.tool_calls.into_iter().map(call).collect();
    set("tool_calls", (!calls.is_empty()).then(|| calls.into()));
    out
}

/// What a template says about messages that it can't render is the client's to know.
fn refused(error: &TemplateError) -> ApiError {
    match error {
        TemplateError::Syntax { .. } => ApiError::new(Code::Internal, error.to_string()),
        _ => ApiError {
            param: Some("messages".into()),
            ..ApiError::new(Code::InvalidValue, error.to_string())
        },
    }
}

/// The control tokens of a model that are marks of reasoning, and those that are marks of calls too.
pub(crate) fn marks(model: &Model) -> [Arc<[u32]>; 2] {
    let Ok(template) = model.template() else { return [Arc::default(), Arc::default()] };
    let (abilities, tokenizer) = (template.abilities(), model.tokenizer());
    let thinks = |text: &str| abilities.thinking.is_some_and(|tags| tags.has_mark(text));
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let controls = ids.filter(|id| tokenizer.is_special(*id) && !tokenizer.is_eog(*id));
    let texts: Vec<(u32, &str)> = controls.filter_map(|id| Some((id, tokenizer.piece(id)?))).collect();
    let choose = |is_mark: &dyn Fn(&str) -> bool| {
        texts.iter().filter(|(_, text)| is_mark(text)).map(|(id, _)| *id).collect()
    };
    [choose(&thinks), choose(&|text| thinks(text) || abilities.calls.has_mark(text))]
}
