use orrery_model::json::parse_value;

use super::*;

const TIME: Duration = Duration::from_millis(400);

fn calls(script: &str) -> Calls {
    Calls::new(Scripts(HashMap::from([("f".to_owned(), script.to_owned())])), TIME)
}

/// Calls `script` with the values of a JSON array; the result is JSON text or `undefined`.
fn call(script: &str, arguments: &str) -> Result<String> {
    let arguments = parse_value(arguments.as_bytes()).unwrap();
    let result = calls(script).call("f", arguments.as_array().unwrap())?;
    Ok(result.map_or_else(|| "undefined".to_owned(), |value| value.to_text()))
}

#[track_caller]
fn check(script: &str, arguments: &str, expected: &str) {
    assert_eq!(call(script, arguments).unwrap(), expected, "{script}");
}

/// The message of the refusal that `script` must end in, within the time of a page.
fn refusal(script: &str) -> String {
    let started = Instant::now();
    let error = call(script, "[]").unwrap_err();
    assert!(started.elapsed() < TIME + Duration::from_secs(5), "{script}");
    assert_eq!(error.status().code, 400, "{script}");
    error.message().to_owned()
}

#[test]
fn json_goes_in_and_comes_out_unchanged() {
    for value in [
        "null",
        "true",
        "-1.5",
        "9007199254740991",
        r#""\u0000 ä 😀 \"""#,
        "[]",
        r#"{"b":[1,{"a":null}],"a":"x"}"#,
    ] {
        let expected = parse_value(value.as_bytes()).unwrap().to_text();
        check("function (x) { return x; }", &format!("[{value}]"), &expected);
    }
}

#[test]
fn what_is_no_json_becomes_undefined_or_what_json_makes_of_it() {
    check("function () {}", "[]", "undefined");
    check("function () { return undefined; }", "[1]", "undefined");
    check("function () { return function () {}; }", "[]", "undefined");
    check("function () { return [1, undefined]; }", "[]", "[1,null]");
    check(
        "function () { return new Date(0); }",
        "[]",
        r#""1970-01-01T00:00:00.000Z""#,
    );
    check("function () { return '\\ud800x'; }", "[]", "\"\u{FFFD}x\"");
}

#[test]
fn a_number_that_json_lacks_stays_a_number() {
    let nan = calls("function () { return 0 / 0; }").call("f", &[]).unwrap();
    assert!(matches!(nan, Some(Value::Number(Number::Double(number))) if number.is_nan()));
}

#[test]
fn functions_are_taken_in_every_form_clients_send() {
    for script in [
        "function (a, b) { return a + b; }",
        "function add(a, b) { return a + b; } // done",
        "(a, b) => a + b",
        "function add(a, b) { return plus(a, b); }\nfunction plus(a, b) { return a + b; }",
        "add(a, b) { return a + b; }",
    ] {
        check(script, "[1, 2]", "3");
    }
}

#[test]
fn exceptions_are_refusals_that_name_them() {
    let message = refusal("function f() { throw new Error('no income'); }");
    assert!(message.contains("Exception = Error: no income"), "{message}");
    assert!(refusal("function () { throw 'plain'; }").contains("Exception = plain"));
    assert!(refusal("function () { return missing; }").contains("ReferenceError"));
    assert!(refusal("function () { return {").contains("SyntaxError"));
    assert!(refusal("42").contains("Exception"));
}

#[test]
fn nothing_outside_of_the_engine_can_be_reached() {
    for name in [
        "require",
        "process",
        "std",
        "os",
        "console",
        "fetch",
        "setTimeout",
        "Proxy",
    ] {
        check(
            &format!("function () {{ return typeof {name}; }}"),
            "[]",
            "\"undefined\"",
        );
    }
}

#[test]
fn an_endless_loop_ends_when_its_time_is_up_and_no_call_follows_it() {
    let calls = calls("function () { for (;;) { try { for (;;); } catch (error) {} } }");
    let started = Instant::now();
    let message = calls.call("f", &[]).unwrap_err().message().to_owned();
    assert!(message.contains("took longer than the allowed 400 ms"), "{message}");
    assert!(started.elapsed() < TIME + Duration::from_secs(5));
    assert!(calls.call("f", &[]).is_err(), "the time is that of the page");
}

#[test]
fn memory_stack_and_built_in_loops_are_bounded() {
    for script in [
        "function () { let a = []; for (;;) a.push('x'.repeat(1000) + a.length); }",
        "function () { return 'x'.repeat(1e9); }",
        "function f() { return f(); }",
        "function () { return new Array(1e9).fill(0); }",
        "function () { let a = []; a.length = 4294967295; return a.indexOf(1); }",
        "function () { let a = []; a.length = 4294967295; return new Set(a).size; }",
        "function () { let a = []; a.length = 4294967295; return [].concat(a).length; }",
        "function () { let a = []; a.length = 4294967295; return [[a]].flat(2).length; }",
        "function () { return Array.prototype.includes.call({ length: 9007199254740991 }, 1); }",
        "function () { let n = 0; return Array.prototype.includes.call({ get length() { return n++ ? 9e15 : 0; } }, 1); }",
        "function () { let a = 'a'.repeat(4e6); return a.indexOf('a'.repeat(2e6) + 'b'); }",
        "function () { let a = {}; for (let i = 0; i < 1e6; i++) a = { a }; return a; }",
    ] {
        refusal(script);
    }
}

#[test]
fn a_regular_expression_that_backtracks_without_end_is_stopped() {
    let message = refusal("function () { return /^(a+)+$/.test('a'.repeat(64) + 'b'); }");
    assert!(message.contains("took longer"), "{message}");
}
