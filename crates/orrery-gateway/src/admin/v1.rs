//! `/_orrery/v1/…`: partitions, snapshots, regions, links, faults, keys, events, changes and the clock.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use orrery_model::{Error, Result, Status};
use orrery_node::Clock as _;
use orrery_node::account::KeyKind;
use orrery_node::api::ChangeFeedRead;
use orrery_node::geo::fleet::Outage;
use orrery_node::geo::topology::is_same_region;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::forms::{
    self, AcceptForm, AdvanceForm, ClockForm, MergeForm, PriorityForm, RegionForm, SkewForm, SnapshotForm, SplitForm,
};
use super::simulation::{DistanceForm, FlappingForm, LinkForm, OutageForm, PauseForm, StepForm};
use super::{OPERATION, authorize, events, feed, respond, text, unknown_path};
use crate::connection::Peer;
use crate::faults::FaultRule;
use crate::handler::{Command, RegionCommand};
use crate::pipeline::{Answered, Incomplete, Pipeline, leave_unread};
use crate::relay::{Administration, Original};

/// Longest name of a snapshot.
const SNAPSHOT_NAME_BYTES_MAX: usize = 64;

/// A request whose sender may do it.
struct Call<'a> {
    pipeline: &'a Pipeline,
    query: Option<String>,
    body: Bytes,
}

pub(super) async fn answer(pipeline: &Pipeline, request: Incomplete<'_>, rest: &str) -> Result<Answered> {
    let link = format!("_orrery/v1/{}", rest.trim_matches('/'));
    authorize(pipeline, &request, &link).inspect_err(|_| leave_unread(request.peer, &request.body))?;
    let body = pipeline.read_body(request.peer, request.body).await?.bytes;
    let query = request.head.uri.query().map(str::to_owned);
    match (request.head.method.as_str(), rest.trim_matches('/')) {
        ("GET", "events") => return listen(pipeline, request.peer, None),
        ("GET", "feed") => {
            let wanted = feed::wanted(query.as_deref(), &request.head.headers)?;
            return listen(pipeline, request.peer, Some(wanted));
        }
        _ => {}
    }
    let segments: Vec<&str> = rest.split('/').filter(|segment| !segment.is_empty()).collect();
    if let Some(relay) = pipeline.parts().handler.relay().filter(|_| !is_of_this_node(&segments)) {
        let original = Original {
            head: request.head,
            body: body.clone(),
            tls: request.peer.tls,
            activity_id: request.activity_id,
            relayed: request.peer.relayed,
        };
        match relay.administer(original).await? {
            Administration::Here => {}
            Administration::Elsewhere(response) => return Ok(Answered::new(OPERATION, response)),
            Administration::NotHere => return Ok(Answered::not_here()),
        }
    }
    let (status, body) = Call { pipeline, query, body }
        .dispatch(&request.head.method, &segments)
        .await?;
    Ok(Answered::new(OPERATION, respond(status, &body)))
}

/// Fault rules and the clock are each node's own, everything else the account's.
fn is_of_this_node(path: &[&str]) -> bool {
    matches!(path, ["faults" | "clock", ..])
}

/// Begins to tell what happens, or what changes.
fn listen(pipeline: &Pipeline, peer: &Peer, feed: Option<ChangeFeedRead>) -> Result<Answered> {
    let place = pipeline.listening_place().ok_or_else(|| {
        Error::new(
            Status::UNAVAILABLE,
            "There are as many listeners to events as there may be.",
        )
    })?;
    let (handler, stopping) = (&pipeline.parts().handler, pipeline.stopping().clone());
    let in_request = peer.traffic.request();
    let stream = match feed {
        None => events::stream(handler.events().listen(), stopping, in_request, place),
        Some(read) => feed::stream(Arc::clone(handler), read, stopping, in_request, place),
    };
    Ok(Answered {
        events: Some(stream),
        ..Answered::new(OPERATION, text("text/event-stream", Bytes::new()))
    })
}

impl Call<'_> {
    async fn dispatch(&self, method: &Method, path: &[&str]) -> Result<(StatusCode, Value)> {
        match (method.as_str(), path) {
            ("GET", ["partitions"]) => self.run(forms::partitions_wanted(self.query.as_deref())?).await,
            ("POST", ["partitions", "split"]) => self.run(self.form::<SplitForm>()?.into()).await,
            ("POST", ["partitions", "merge"]) => self.run(self.form::<MergeForm>()?.into()).await,
            ("POST", ["partitions", "advance"]) => self.run(self.form::<AdvanceForm>()?.into()).await,
            ("GET", ["snapshots"]) => self.run(Command::Snapshots).await,
            ("POST", ["snapshots"]) => {
                let name = snapshot_name(&self.form::<SnapshotForm>()?.name)?;
                Ok((StatusCode::CREATED, self.run(Command::SaveSnapshot { name }).await?.1))
            }
            ("POST", ["snapshots", "reset"]) => self.run(Command::Reset).await,
            ("POST", ["snapshots", name, "restore"]) => {
                self.run(Command::RestoreSnapshot {
                    name: snapshot_name(name)?,
                })
                .await
            }
            ("DELETE", ["snapshots", name]) => {
                self.run(Command::DropSnapshot {
                    name: snapshot_name(name)?,
                })
                .await
            }
            ("GET" | "POST" | "DELETE", ["faults", rest @ ..]) => self.faults(method, rest),
            ("POST", ["keys", kind, "rotate"]) => self.run(Command::RotateKey(key_kind(kind)?)).await,
            ("GET" | "POST" | "DELETE", ["regions" | "failover", ..])
            | ("GET" | "PUT", ["links"])
            | ("POST", ["links", "pause" | "step"])
            | ("GET", ["simulation"]) => self.run(Command::Regions(self.region_command(method, path)?)).await,
            ("GET", ["clock"]) => self.clock(None),
            ("PUT", ["clock"]) => self.clock(Some(self.form::<ClockForm>()?.offset_ms)),
            _ => Err(unknown_path()),
        }
    }

    async fn run(&self, command: Command) -> Result<(StatusCode, Value)> {
        let answer = self.pipeline.parts().handler.administer(command).await?;
        Ok((StatusCode::OK, forms::show(&answer)))
    }

    fn region_command(&self, method: &Method, path: &[&str]) -> Result<RegionCommand> {
        let named = |name: &str| forms::decoded(name);
        Ok(match (method.as_str(), path) {
            ("GET", ["regions"]) => RegionCommand::List,
            ("POST", ["regions"]) => RegionCommand::Add {
                region: self.form::<RegionForm>()?.region,
            },
            ("DELETE", ["regions", region]) => RegionCommand::Remove {
                region: named(region)?,
                drain: forms::drain_wanted(self.query.as_deref())?,
            },
            ("POST", ["regions", region, "clock"]) if self.pipeline.settings().development => RegionCommand::Skew {
                region: named(region)?,
                skew_ms: moved_by(self.form::<SkewForm>()?.skew_ms)?,
            },
            ("POST", ["regions", _, "clock"]) => return Err(clock_is_fixed()),
            ("POST", ["failover"]) => RegionCommand::ChangeWriter {
                region: self.form::<RegionForm>()?.region,
            },
            ("POST", ["regions", region, "offline"]) => RegionCommand::Offline {
                region: named(region)?,
                accept_loss: self.form_or_nothing::<AcceptForm>()?.accept_loss,
            },
            ("POST", ["regions", region, "online"]) => RegionCommand::Online {
                region: named(region)?,
                accept_loss: self.form_or_nothing::<AcceptForm>()?.accept_loss,
            },
            ("POST", ["regions", "priority"]) => RegionCommand::Prioritize {
                regions: self.form::<PriorityForm>()?.regions,
            },
            ("POST", ["regions", "flapping"]) => {
                self.check_development()?;
                self.form::<FlappingForm>()?.command()?
            }
            ("POST", ["regions", region, "stop"]) => self.stop(named(region)?)?,
            ("POST", ["regions", region, "clients"]) => RegionCommand::Distance {
                region: named(region)?,
                distance: self.form::<DistanceForm>()?.distance()?,
            },
            ("POST", ["regions", region, "start"]) => RegionCommand::Outage {
                region: named(region)?,
                outage: None,
            },
            ("GET", ["links"]) => RegionCommand::Links,
            ("PUT", ["links"]) => self.form::<LinkForm>()?.command()?,
            ("POST", ["links", "pause"]) => self.form::<PauseForm>()?.command(),
            ("POST", ["links", "step"]) => self.form::<StepForm>()?.command()?,
            ("GET", ["simulation"]) => RegionCommand::Simulation,
            _ => return Err(unknown_path()),
        })
    }

    /// Stopping an endpoint can be undone; killing a region is for development.
    fn stop(&self, region: String) -> Result<RegionCommand> {
        let outage = self.form::<OutageForm>()?.outage()?;
        if outage == Outage::Killed {
            self.check_development()?;
        }
        Ok(RegionCommand::Outage {
            region,
            outage: Some(outage),
        })
    }

    fn check_development(&self) -> Result<()> {
        match self.pipeline.settings().development {
            true => Ok(()),
            false => Err(Error::new(Status::FORBIDDEN, "This is possible in development only.")),
        }
    }

    fn faults(&self, method: &Method, path: &[&str]) -> Result<(StatusCode, Value)> {
        let faults = self.pipeline.faults();
        match (method, path) {
            (&Method::GET, []) => Ok((StatusCode::OK, json!({"faults": faults.list()}))),
            (&Method::POST, []) => {
                let mut rule = self.form::<FaultRule>()?;
                // What is asked of a region's endpoint is about that region.
                let handler = &self.pipeline.parts().handler;
                rule.region = rule.region.or_else(|| handler.own_region());
                if let Some(named) = &rule.region
                    && !handler
                        .account()
                        .regions
                        .iter()
                        .any(|known| is_same_region(known, named))
                {
                    return Err(Error::bad_request(format!("The account has no region {named}.")));
                }
                Ok((StatusCode::CREATED, json!(faults.add(rule)?)))
            }
            (&Method::DELETE, []) => {
                faults.clear();
                Ok((StatusCode::OK, json!({})))
            }
            (&Method::DELETE, [id]) if id.parse().is_ok_and(|id| faults.remove(id)) => Ok((StatusCode::OK, json!({}))),
            (&Method::DELETE, [_]) => Err(Error::new(Status::NOT_FOUND, "There is no such fault rule.")),
            _ => Err(unknown_path()),
        }
    }

    /// Time as the node sees it; moving it is for tests of expiry and the like.
    fn clock(&self, offset_ms: Option<i64>) -> Result<(StatusCode, Value)> {
        let parts = self.pipeline.parts();
        let Some(clock) = parts.movable_clock.as_ref().filter(|_| parts.settings.development) else {
            return Err(clock_is_fixed());
        };
        if let Some(offset_ms) = offset_ms {
            clock.set_offset_ms(moved_by(offset_ms)?);
        }
        Ok((StatusCode::OK, json!({"nowMs": clock.now().0})))
    }

    fn form_or_nothing<T: DeserializeOwned + Default>(&self) -> Result<T> {
        match self.body.is_empty() {
            true => Ok(T::default()),
            false => self.form(),
        }
    }

    fn form<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::bad_request(format!("The body is not what this path takes: {error}.")))
    }
}

/// How far a clock is moved: further than a century nobody has dates for.
fn moved_by(ms: i64) -> Result<i64> {
    const CENTURY_MS: u64 = 100 * 366 * 24 * 60 * 60 * 1_000;
    match ms.unsigned_abs() <= CENTURY_MS {
        true => Ok(ms),
        false => Err(Error::bad_request("A clock is moved by a century at most.")),
    }
}

fn clock_is_fixed() -> Error {
    Error::new(Status::FORBIDDEN, "The clock can only be moved in development.")
}

fn snapshot_name(name: &str) -> Result<String> {
    let fits = (1..=SNAPSHOT_NAME_BYTES_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !name.starts_with('.');
    fits.then(|| name.to_owned()).ok_or_else(|| {
        Error::bad_request("A snapshot's name has 1 to 64 letters, digits, dashes, underscores and dots and does not start with a dot.")
    })
}

fn key_kind(text: &str) -> Result<KeyKind> {
    match text {
        "primary" => Ok(KeyKind::Primary),
        "secondary" => Ok(KeyKind::Secondary),
        "primary-read-only" => Ok(KeyKind::PrimaryReadOnly),
        "secondary-read-only" => Ok(KeyKind::SecondaryReadOnly),
        _ => Err(Error::bad_request(
            "A key is one of primary, secondary, primary-read-only and secondary-read-only.",
        )),
    }
}

impl From<SplitForm> for Command {
    fn from(form: SplitForm) -> Command {
        if form.manual {
            return Command::BeginByHand {
                database: form.database,
                container: form.container,
                partitions: vec![form.partition],
            };
        }
        Command::Split {
            database: form.database,
            container: form.container,
            partition: form.partition,
        }
    }
}

impl From<AdvanceForm> for Command {
    fn from(form: AdvanceForm) -> Command {
        Command::Advance {
            database: form.database,
            container: form.container,
            partition: form.partition,
        }
    }
}

impl From<MergeForm> for Command {
    fn from(form: MergeForm) -> Command {
        if form.manual {
            return Command::BeginByHand {
                database: form.database,
                container: form.container,
                partitions: form.partitions.to_vec(),
            };
        }
        let [first, second] = form.partitions;
        Command::Merge {
            database: form.database,
            container: form.container,
            partitions: (first, second),
        }
    }
}
