//! User-defined functions: JavaScript written by strangers, in an engine that can reach nothing outside of it.
//!
//! One engine serves one page of a query, on the thread that makes the page, and is gone with it. Its memory, its stack and
//! the time of all calls together are bounded; what goes in and comes out is JSON, or undefined.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use orrery_model::json::{self, JsonError, Number, Value};
use orrery_model::{Error, Result};
use orrery_query::{QueryError, UserFunctions};
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Function, Persistent, Runtime};

use crate::api::{ResourceKind, Selector};
use crate::catalogue::{Catalogue, ContainerEntry};

const MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;
const STACK_BYTES_MAX: usize = 256 * 1024;
/// All calls of one page together.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Of an exception's text, so much is shown.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Text functions and collections, but neither promises nor proxies, which nothing here would run or need.
type Builtins = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
);

/// The functions a query calls: name and JavaScript.
#[derive(Clone, Debug, Default)]
pub struct Scripts(HashMap<String, String>);

impl Scripts {
    /// Finds the functions with the given names in a container. One that is missing shows when it is called.
    pub fn find<'n>(
        catalogue: &Catalogue,
        container: &ContainerEntry,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Scripts {
        let script = |name: &str| {
            let selector = Selector::Name(name.to_owned());
            let (_, record) = catalogue.find(ResourceKind::UserDefinedFunction, Some(&container.rid), &selector)?;
            let definition = json::parse_value(&record.definition).ok()?;
            Some((name.to_owned(), definition.get("body")?.as_str()?.to_owned()))
        };
        Scripts(names.into_iter().filter_map(script).collect())
    }
}

/// An error in the form of those that the query engine finds.
fn refused(message: String) -> Error {
    QueryError::plain(message).into()
}

/// Runs the functions of one page. The engine behind it is made for the first call.
pub struct Calls {
    scripts: Scripts,
    time_max: Duration,
    engine: OnceCell<Engine>,
}

impl Calls {
    /// The functions get no more time than the query has.
    pub fn new(scripts: Scripts, query_time_max: Duration) -> Calls {
        Calls {
            scripts,
            time_max: query_time_max.min(TIME_MAX),
            engine: OnceCell::new(),
        }
    }

    fn engine(&self) -> Result<&Engine> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let engine = Engine::new(self.time_max)
            .map_err(|error| refused(format!("The script engine could not start: {error}")))?;
        Ok(self.engine.get_or_init(|| engine))
    }
}

impl UserFunctions for Calls {
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Option<Value>> {
        let script = self.scripts.0.get(name);
        let script =
            script.ok_or_else(|| refused(format!("The user-defined function '{name}' could not be found.")))?;
        self.engine()?.call(name, script, arguments)
    }
}

struct Engine {
    // Functions must be gone before the engine they belong to; fields are dropped in this order.
    functions: RefCell<HashMap<String, Persistent<Function<'static>>>>,
    context: Context,
    time: Rc<Time>,
}

/// How long functions may still run.
struct Time {
    max: Duration,
    left: Cell<Duration>,
    deadline: Cell<Instant>,
    is_up: Cell<bool>,
}

impl Time {
    fn check(&self) -> bool {
        if Instant::now() >= self.deadline.get() {
            self.is_up.set(true);
        }
        self.is_up.get()
    }
}

impl Engine {
    fn new(time_max: Duration) -> rquickjs::Result<Engine> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(MEMORY_BYTES_MAX);
        runtime.set_max_stack_size(STACK_BYTES_MAX);
        let time = Rc::new(Time {
            max: time_max,
            left: Cell::new(time_max),
            deadline: Cell::new(Instant::now() + time_max),
            is_up: Cell::new(false),
        });
        let watch = Rc::clone(&time);
        runtime.set_interrupt_handler(Some(Box::new(move || watch.check())));
        let context = Context::custom::<Builtins>(&runtime)?;
        context.with(|ctx| ctx.eval::<(), _>(include_str!("prelude.js")))?;
        Ok(Engine {
            functions: RefCell::default(),
            context,
            time,
        })
    }

    fn call(&self, name: &str, script: &str, arguments: &[Value]) -> Result<Option<Value>> {
        let started = Instant::now();
        self.time.deadline.set(started + self.time.left.get());
        let result = self.context.with(|ctx| {
            self.call_within(&ctx, name, script, arguments)
                .map_err(|error| self.failure(&ctx, name, error))
        });
        self.time
            .left
            .set(self.time.left.get().saturating_sub(started.elapsed()));
        result?.map_err(|error| {
            refused(format!(
                "The result of the user-defined function '{name}' cannot be used: {error}"
            ))
        })
    }

    /// The outer result is the engine's, the inner one says whether the value can leave it.
    fn call_within<'js>(
        &self,
        ctx: &Ctx<'js>,
        name: &str,
        script: &str,
        arguments: &[Value],
    ) -> rquickjs::Result<Result<Option<Value>, JsonError>> {
        let function = self.function(ctx, name, script)?;
        let mut args = Args::new(ctx.clone(), arguments.len());
        for argument in arguments {
            args.push_arg(to_script(ctx, argument)?)?;
        }
        from_script(ctx, function.call_arg(args)?)
    }

    /// A function, compiled when it is first called.
    fn function<'js>(&self, ctx: &Ctx<'js>, name: &str, script: &str) -> rquickjs::Result<Function<'js>> {
        if let Some(function) = self.functions.borrow().get(name) {
            return function.clone().restore(ctx);
        }
        let function = compile(ctx, script)?;
        let kept = Persistent::save(ctx, function.clone());
        self.functions.borrow_mut().insert(name.to_owned(), kept);
        Ok(function)
    }

    fn failure(&self, ctx: &Ctx<'_>, name: &str, error: rquickjs::Error) -> Error {
        if self.time.is_up.get() {
            return refused(format!(
                "The user-defined functions of the query took longer than the allowed {} ms, the last one called was '{name}'.",
                self.time.max.as_millis()
            ));
        }
        let text = match error {
            rquickjs::Error::Exception => exception_text(ctx),
            other => other.to_string(),
        };
        let text: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
        refused(format!(
            "Encountered exception while executing function '{name}'. Exception = {text}"
        ))
    }
}

/// What was thrown, as JavaScript would print it.
fn exception_text(ctx: &Ctx<'_>) -> String {
    let thrown = ctx.catch();
    let Some(exception) = thrown.as_exception() else {
        return match from_script(ctx, thrown) {
            Ok(Ok(Some(Value::String(text)))) => text,
            Ok(Ok(Some(value))) => value.to_text(),
            _ => "undefined".to_owned(),
        };
    };
    let name: String = exception.get("name").unwrap_or_else(|_| "Error".to_owned());
    let message = exception.message().unwrap_or_default();
    let stack = exception.stack().unwrap_or_default();
    format!("{name}: {message}\r\nStack trace: {}", stack.trim_end())
}

/// Makes a function of its text: a function expression, declarations of which the first one counts, or a method as an
/// object literal would have it, which is what a client gets by printing one.
fn compile<'js>(ctx: &Ctx<'js>, script: &str) -> rquickjs::Result<Function<'js>> {
    let evaluate = |text: String| {
        let mut options = EvalOptions::default();
        options.strict = false;
        ctx.eval_with_options::<Function<'js>, _>(text, options)
    };
    let first = match evaluate(format!("({script}\n)")) {
        Ok(function) => return Ok(function),
        // Kept, because it is about the text as its author wrote it.
        Err(rquickjs::Error::Exception) => ctx.catch(),
        Err(error) => return Err(error),
    };
    let other_form = match declared_name(script) {
        Some(name) => format!("(function () {{ {script}\n; return {name}; }})()"),
        None => format!("Object.values({{ {script}\n }})[0]"),
    };
    evaluate(other_form).map_err(|_| {
        ctx.catch();
        ctx.throw(first)
    })
}

/// The name in `function name(…)`.
fn declared_name(script: &str) -> Option<&str> {
    let rest = script.trim_start().strip_prefix("function")?.trim_start();
    let end = rest.find(|next: char| !(next.is_alphanumeric() || matches!(next, '_' | '$')))?;
    (end > 0).then(|| &rest[..end])
}

fn to_script<'js>(ctx: &Ctx<'js>, value: &Value) -> rquickjs::Result<rquickjs::Value<'js>> {
    use rquickjs::Value as Script;
    Ok(match value {
        Value::Null => Script::new_null(ctx.clone()),
        Value::Bool(value) => Script::new_bool(ctx.clone(), *value),
        Value::Number(number) => Script::new_number(ctx.clone(), number.to_f64()),
        Value::String(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
        Value::Array(_) | Value::Object(_) => ctx.json_parse(value.to_text())?,
    })
}

/// The outer result is the engine's; the inner one fails for a value nested deeper than any item may be.
fn from_script<'js>(ctx: &Ctx<'js>, value: rquickjs::Value<'js>) -> rquickjs::Result<Result<Option<Value>, JsonError>> {
    if let Some(number) = value.as_number() {
        return Ok(Ok(Some(Value::Number(Number::from_f64(number)))));
    }
    let Some(text) = ctx.json_stringify(value)? else {
        return Ok(Ok(None));
    };
    Ok(json::parse_value(text.to_string()?.as_bytes()).map(Some))
}

#[cfg(test)]
mod tests;
