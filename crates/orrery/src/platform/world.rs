//! The world API: all regions of all accounts at once, and the levers that move them. For development, and for this machine
//! only; `docs/guides/world-api.md` describes it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use orrery_model::{Error, Status};
use orrery_node::geo::fleet::{Fleet, LinkInfo, Outage};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::report::RegionInfo;
use orrery_node::geo::topology::RegionState;
use orrery_platform::{Extension, ExtensionAnswer, Platform, RegionUrl, is_local};
use orrery_publishing::topology::AccountTable;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::host::{Host, RegionTraffic};
use crate::topology::places;

/// Asking the roles how far they are takes many requests; the page asks twice a second.
const FANOUT_AGE: Duration = Duration::from_secs(2);
const LATENCY_MS_MAX: f64 = 600_000.0;

type Answered = Result<Value, ExtensionAnswer>;

pub struct World {
    accounts: Vec<WorldAccount>,
    urls: Vec<RegionUrl>,
    /// Known a little later: services need the world first.
    platforms: OnceLock<Vec<Arc<Platform>>>,
    fanout: Arc<FanoutView>,
}

struct WorldAccount {
    tag: String,
    id: String,
    endpoint: String,
    fleet: Arc<Fleet>,
    traffic: RegionTraffic,
}

/// The fan-out roles as they were a moment ago.
#[derive(Default)]
struct FanoutView {
    last: Mutex<(Option<Instant>, Value)>,
    is_asking: AtomicBool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LinkForm {
    from: String,
    to: String,
    #[serde(default)]
    latency_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(default)]
    loss: f64,
    #[serde(default)]
    cut: bool,
    #[serde(default)]
    paused: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailoverForm {
    region: String,
}

impl World {
    pub fn new(host: &Host, table: &AccountTable, urls: &[RegionUrl]) -> World {
        let account = |(entry, (fleet, traffic)): (&orrery_publishing::topology::AccountEntry, _)| WorldAccount {
            tag: entry.tag.clone(),
            id: entry.name.clone(),
            endpoint: entry.endpoint.clone(),
            fleet,
            traffic,
        };
        World {
            accounts: table.accounts().iter().zip(host.fleets()).map(account).collect(),
            urls: urls.to_vec(),
            platforms: OnceLock::new(),
            fanout: Arc::default(),
        }
    }

    /// Tells the world its services.
    pub fn know(&self, platforms: Vec<Arc<Platform>>) {
        let _ = self.platforms.set(platforms);
    }

    fn platforms(&self) -> &[Arc<Platform>] {
        self.platforms.get().map_or(&[], Vec::as_slice)
    }

    async fn handle(&self, parts: &Parts, body: &Bytes) -> Answered {
        let path: Option<Vec<String>> = parts.uri.path().split('/').skip(3).map(decoded).collect();
        let path = path.ok_or_else(|| invalid("the path cannot be understood"))?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match (&parts.method, path.as_slice()) {
            (&Method::GET, []) => Ok(self.all()),
            (&Method::PUT, ["links"]) => self.set_link(&form(body)?),
            (&Method::POST, ["accounts", tag, "failover"]) => self.fail_over(tag, &form(body)?).await,
            (&Method::POST, ["regions", name, "stop"]) => self.set_stopped(name, true),
            (&Method::POST, ["regions", name, "start"]) => self.set_stopped(name, false),
            (_, [] | ["links"] | ["accounts", _, "failover"] | ["regions", _, "stop" | "start"]) => {
                Err(ExtensionAnswer::Failure(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "the method is not known".into(),
                ))
            }
            _ => Err(not_found("there is nothing here")),
        }
    }

    fn all(&self) -> Value {
        self.ask_fanout();
        let fanout = self.fanout.last.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "regions": self.urls.iter().map(|known| self.region(&known.region)).collect::<Vec<_>>(),
            "accounts": self.accounts.iter().map(WorldAccount::shown).collect::<Vec<_>>(),
            "links": self.links(),
            "fanout": match &fanout.1 { Value::Null => json!([]), known => known.clone() },
        })
    }

    fn region(&self, name: &str) -> Value {
        let at = self.urls.iter().position(|known| known.region == name).unwrap_or(0);
        // Regions nobody knows the place of stand in a row on the equator.
        let unknown = (0.0, -150.0 + 300.0 * (at as f64 + 0.5) / self.urls.len() as f64);
        let (latitude, longitude) = places::find(name).map_or(unknown, |place| (place.latitude, place.longitude));
        json!({
            "name": name, "latitude": latitude, "longitude": longitude,
            "url": self.urls.get(at).map(|known| &known.url),
            "state": if self.is_stopped(name) { "stopped" } else { "running" },
        })
    }

    /// A region is stopped when none of its replicas answers.
    fn is_stopped(&self, name: &str) -> bool {
        self.accounts.iter().all(|account| {
            let region = account.fleet.topology().named(name).map(|region| region.id);
            region.is_ok_and(|id| account.fleet.outage(id).is_some())
        })
    }

    /// All accounts have the same links, as this API sets them.
    fn links(&self) -> Value {
        let links = self.accounts.first().map(|account| account.fleet.links());
        let shown = |link: &LinkInfo| {
            let settings = &link.settings;
            json!({
                "from": link.from, "to": link.to,
                "latencyMs": settings.latency.as_secs_f64() * 1000.0,
                "jitterMs": settings.jitter.as_secs_f64() * 1000.0,
                "bytesPerSecond": settings.bytes_per_second, "loss": settings.loss,
                "cut": settings.cut, "paused": settings.paused,
            })
        };
        links.unwrap_or_default().iter().map(shown).collect()
    }

    fn set_link(&self, form: &LinkForm) -> Answered {
        let duration = |milliseconds: f64| match (0.0..=LATENCY_MS_MAX).contains(&milliseconds) {
            true => Ok(Duration::from_secs_f64(milliseconds / 1000.0)),
            false => Err(invalid("a link takes between 0 and 600,000 milliseconds")),
        };
        if !(0.0..=1.0).contains(&form.loss) {
            return Err(invalid("the loss of a link is between 0 and 1"));
        }
        let (latency, jitter) = (duration(form.latency_ms)?, duration(form.jitter_ms)?);
        for account in &self.accounts {
            let known = account
                .fleet
                .link(&form.from, &form.to)
                .map_err(|_| not_found("there is no such link"))?;
            let settings = LinkSettings {
                latency,
                jitter,
                loss: form.loss,
                cut: form.cut,
                paused: form.paused,
                ..known
            };
            let set = account.fleet.set_link(&form.from, &form.to, settings);
            set.map_err(|_| not_found("there is no such link"))?;
        }
        Ok(self.links())
    }

    async fn fail_over(&self, tag: &str, form: &FailoverForm) -> Answered {
        let account = self.accounts.iter().find(|account| account.tag == tag);
        let account = account.ok_or_else(|| not_found("there is no such account"))?;
        let topology = account.fleet.topology();
        let wanted = topology
            .named(&form.region)
            .map_err(|_| not_found("there is no such region"))?;
        if topology.writer().id != wanted.id {
            let changed = Arc::clone(&account.fleet).change_writer(&form.region).await;
            changed.map_err(|error| refused(&error))?;
        }
        Ok(account.shown())
    }

    fn set_stopped(&self, name: &str, stopped: bool) -> Answered {
        let known = self
            .urls
            .iter()
            .position(|known| places::plain(&known.region) == places::plain(name));
        let at = known.ok_or_else(|| not_found("there is no such region"))?;
        let region = &self.urls[at].region;
        for account in &self.accounts {
            let outage = stopped.then_some(Outage::Unavailable);
            account
                .fleet
                .set_outage(region, outage)
                .map_err(|error| refused(&error))?;
        }
        if let Some(platform) = self.platforms().get(at) {
            platform.set_closed(stopped);
        }
        Ok(self.region(region))
    }

    /// Looks at the roles again, unless somebody just did.
    fn ask_fanout(&self) {
        let asked = self.fanout.last.lock().unwrap_or_else(PoisonError::into_inner).0;
        let is_fresh = asked.is_some_and(|at| at.elapsed() < FANOUT_AGE);
        if is_fresh || self.fanout.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (view, platforms) = (Arc::clone(&self.fanout), self.platforms().to_vec());
        tokio::spawn(async move {
            let mut shown = Vec::new();
            for home in &platforms {
                shown.push(shown_role(&platforms, home).await);
            }
            *view.last.lock().unwrap_or_else(PoisonError::into_inner) = (Some(Instant::now()), Value::Array(shown));
            view.is_asking.store(false, Ordering::Release);
        });
    }
}

/// The role of a region's account, which another region may run.
async fn shown_role(platforms: &[Arc<Platform>], home: &Platform) -> Value {
    let account = home.database().local().tag();
    let holds = |platform: &&Arc<Platform>| platform.fanout().holds().iter().any(|held| held == account);
    let holder = platforms.iter().find(holds);
    let asked = holder.map_or(home, |holder| &**holder).fanout();
    let (sources, leases) = tokio::join!(asked.states_of(account), asked.role().leases(account));
    json!({
        "region": holder.map(|holder| holder.database().region()), "account": account,
        "sources": sources, "leases": leases,
    })
}

impl WorldAccount {
    fn shown(&self) -> Value {
        let region = |region: &RegionInfo| {
            let state = match region.state {
                RegionState::Seeding => "seeding",
                RegionState::Online => "online",
                RegionState::Offline => "offline",
                RegionState::Draining => "draining",
                RegionState::Retired => "retired",
            };
            let lag = (region.state == RegionState::Online).then_some(&region.lag);
            let (reads, writes) = self.traffic.of(&region.name);
            json!({
                "name": region.name, "role": if region.writes { "write" } else { "read" }, "state": state,
                "lagMs": lag.map(|lag| lag.age.as_millis() as u64),
                "lagTransactions": lag.map(|lag| lag.transactions),
                "readsTotal": reads, "writesTotal": writes,
            })
        };
        json!({
            "id": self.id, "tag": self.tag, "endpoint": self.endpoint,
            "regions": self.fleet.regions().iter().map(region).collect::<Vec<_>>(),
        })
    }
}

impl Extension for World {
    fn owns(&self, path: &str) -> bool {
        path == "/v1/world" || path.starts_with("/v1/world/")
    }

    fn answer<'a>(
        &'a self,
        parts: &'a Parts,
        body: Bytes,
        peer: IpAddr,
    ) -> std::pin::Pin<Box<dyn Future<Output = ExtensionAnswer> + Send + 'a>> {
        Box::pin(async move {
            // Whoever is not on this machine is told what a service without this API tells.
            if !is_local(&parts.headers, peer) {
                return not_found("there is nothing here");
            }
            match self.handle(parts, &body).await {
                Ok(shown) => ExtensionAnswer::Json(StatusCode::OK, shown),
                Err(failure) => failure,
            }
        })
    }
}

fn form<T: serde::de::DeserializeOwned>(body: &Bytes) -> Result<T, ExtensionAnswer> {
    serde_json::from_slice(body).map_err(|error| invalid(&format!("the body cannot be understood: {error}")))
}

/// Percent-decoded; `None` when that is no text.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = after;
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn invalid(message: &str) -> ExtensionAnswer {
    ExtensionAnswer::Failure(StatusCode::BAD_REQUEST, "invalid", message.to_owned())
}

fn not_found(message: &str) -> ExtensionAnswer {
    ExtensionAnswer::Failure(StatusCode::NOT_FOUND, "not-found", message.to_owned())
}

fn refused(error: &Error) -> ExtensionAnswer {
    let (status, code) = match error.status() {
        Status::BAD_REQUEST => (StatusCode::BAD_REQUEST, "invalid"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    ExtensionAnswer::Failure(status, code, error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_percent_decoded() {
        assert_eq!(decoded("North%20Europe").as_deref(), Some("North Europe"));
        assert_eq!(decoded("usa").as_deref(), Some("usa"));
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
