//! What a step asks of the administration API. Its members are those of the API, with dashes instead of capitals; whatever the
//! server does not know it refuses.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use http::Method;
use serde_json::{Map, Value};

use crate::client::{Call, Client};

/// One request, or a link that is changed and keeps the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Ask {
        method: Method,
        path: String,
        body: Option<Value>,
    },
    Link {
        from: String,
        to: String,
        change: Map<String, Value>,
    },
}

impl Act {
    pub fn new(name: &str, members: Map<String, Value>) -> Result<Act> {
        let mut members: Map<String, Value> = members.into_iter().map(|(name, value)| (camel(&name), value)).collect();
        let one_partition = members.contains_key("partition");
        let (method, path) = match name {
            "link" => return link(members),
            "pause" | "resume" if !one_partition => {
                members.insert("paused".to_owned(), (name == "pause").into());
                if name == "resume" {
                    members.insert("cut".to_owned(), false.into());
                }
                return link(members);
            }
            "pause" | "resume" => {
                members.insert("paused".to_owned(), (name == "pause").into());
                (Method::POST, "links/pause".to_owned())
            }
            "step" => (Method::POST, "links/step".to_owned()),
            "stop" | "start" | "clients" | "clock" | "offline" | "online" => {
                let region = taken(&mut members, "region")?;
                (Method::POST, format!("regions/{}/{name}", plain(&region)))
            }
            "remove" => {
                let region = taken(&mut members, "region")?;
                (Method::DELETE, format!("regions/{}", plain(&region)))
            }
            "add" => (Method::POST, "regions".to_owned()),
            "flap" => (Method::POST, "regions/flapping".to_owned()),
            "failover" => (Method::POST, "failover".to_owned()),
            "priority" => (Method::POST, "regions/priority".to_owned()),
            "split" | "merge" | "advance" => (Method::POST, format!("partitions/{name}")),
            "fault" => (Method::POST, "faults".to_owned()),
            "clear-faults" => (Method::DELETE, "faults".to_owned()),
            _ => bail!("there is nothing called {name} that it could do"),
        };
        let body = (method == Method::POST).then_some(Value::Object(members));
        Ok(Act::Ask { method, path, body })
    }
}

fn link(mut members: Map<String, Value>) -> Result<Act> {
    Ok(Act::Link {
        from: taken(&mut members, "from")?,
        to: taken(&mut members, "to")?,
        change: members,
    })
}

fn taken(members: &mut Map<String, Value>, name: &str) -> Result<String> {
    let value = members.remove(name);
    let text = value.as_ref().and_then(Value::as_str).map(str::to_owned);
    text.with_context(|| format!("it needs a name: {name}"))
}

/// `delay-ms` as the API spells it.
fn camel(name: &str) -> String {
    let mut parts = name.split('-');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut whole, part| {
        let mut letters = part.chars();
        whole.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        whole.push_str(letters.as_str());
        whole
    })
}

/// Names are compared without regard to blanks, so a path needs none.
fn plain(region: &str) -> String {
    region.replace([' ', '/'], "")
}

pub async fn carry_out(act: &Act, client: &Arc<Client>) -> Result<()> {
    let call = match act {
        Act::Ask { method, path, body } => {
            let call = Call::administration(method.clone(), path, &[]);
            match body {
                Some(body) => call.json(body.to_string()),
                None => call,
            }
        }
        Act::Link { from, to, change } => {
            let mut link = current_link(client, from, to).await?;
            link.extend(change.clone());
            Call::administration(Method::PUT, "links", &[]).json(Value::Object(link).to_string())
        }
    };
    client.connection().call(&call).await?.success().map(drop)
}

async fn current_link(client: &Arc<Client>, from: &str, to: &str) -> Result<Map<String, Value>> {
    let call = Call::administration(Method::GET, "links", &[]);
    let answer = client.connection().call(&call).await?.success()?.parse()?;
    let is_same = |known: &Value, wanted: &str| {
        let same = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
        known.as_str().is_some_and(|known| same(known) == same(wanted))
    };
    let links = answer["links"].as_array().into_iter().flatten();
    let mut found = links.filter(|link| is_same(&link["from"], from) && is_same(&link["to"], to));
    let link = found.next().and_then(Value::as_object).cloned();
    let mut link = link.with_context(|| format!("there is no link from {from} to {to}"))?;
    // These are set in ways of their own.
    link.retain(|name, _| name != "pausedPartitions" && name != "stepsLeft");
    Ok(link)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn act(name: &str, members: Value) -> Act {
        Act::new(name, members.as_object().cloned().unwrap()).unwrap()
    }

    fn check(name: &str, members: Value, method: Method, path: &str, body: Option<Value>) {
        let expected = Act::Ask {
            method,
            path: path.to_owned(),
            body,
        };
        assert_eq!(act(name, members), expected, "{name}");
    }

    #[test]
    fn steps_become_requests() {
        let stop = json!({"region": "West US", "mode": "slow", "delay-ms": 5});
        let asked = json!({"mode": "slow", "delayMs": 5});
        check("stop", stop, Method::POST, "regions/WestUS/stop", Some(asked));
        check(
            "flap",
            json!({"for-ms": 9}),
            Method::POST,
            "regions/flapping",
            Some(json!({"forMs": 9})),
        );
        check("clear-faults", json!({}), Method::DELETE, "faults", None);
        let one = json!({"from": "A", "to": "B", "database": "d", "container": "c", "partition": 0});
        let mut asked = one.clone();
        asked["paused"] = true.into();
        check("pause", one, Method::POST, "links/pause", Some(asked));
    }

    #[test]
    fn a_link_keeps_what_a_step_does_not_name() {
        let Act::Link { from, to, change } = act("resume", json!({"from": "A", "to": "B"})) else {
            panic!("a link is changed");
        };
        assert_eq!((from.as_str(), to.as_str()), ("A", "B"));
        assert_eq!(Value::Object(change), json!({"paused": false, "cut": false}));
    }
}
