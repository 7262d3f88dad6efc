//! Which regions an account has, which of them takes writes, and what may become of them. Pure: every operation answers the
//! next topology or says why it is refused.
//!
//! Invariants: the regions stand in the order of failover priority, the first one takes writes and is online; numbers of
//! regions are given once; `number` rises with every change and `epoch` with every change of the write region.

use std::collections::BTreeMap;

use orrery_model::json::{self, Number, Object, Value};
use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};

/// Number of a region in its account. Given once, also to a region that leaves and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// New: it takes over what there is and serves nothing yet.
    Seeding,
    Online,
    /// Taken out: it serves nothing and follows nobody.
    Offline,
    /// About to leave: it serves nothing, and clients may still be told of it.
    Draining,
    /// Gone. Only its number is remembered, should it come back.
    Retired,
}

/// Longest name of a region.
const NAME_CHARACTERS_MAX: usize = 64;

const STATES: [(RegionState, &str); 5] = [
    (RegionState::Seeding, "seeding"),
    (RegionState::Online, "online"),
    (RegionState::Offline, "offline"),
    (RegionState::Draining, "draining"),
    (RegionState::Retired, "retired"),
];

impl RegionState {
    /// As operators read it.
    pub fn name(self) -> &'static str {
        STATES
            .iter()
            .find(|(state, _)| *state == self)
            .map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Option<RegionState> {
        STATES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub id: RegionId,
    /// As clients know it.
    pub name: String,
    pub state: RegionState,
    /// Of a region that another one took over from: what it has of these logs after these LSNs is not part of the account.
    pub cut_off: BTreeMap<LogId, Lsn>,
    /// Of the region that takes writes: its data is damaged, so it neither serves nor writes until another one has taken over.
    pub damaged: bool,
}

/// One configuration of an account's regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub number: u64,
    pub epoch: Epoch,
    pub regions: Vec<Region>,
}

impl Topology {
    /// A new account: the first name takes writes.
    pub fn new(names: &[String]) -> Result<Topology> {
        let mut topology = Topology {
            number: 1,
            epoch: Epoch(1),
            regions: Vec::new(),
        };
        for name in names {
            topology.push(name)?;
        }
        if topology.regions.is_empty() {
            return Err(Error::bad_request("An account needs at least one region."));
        }
        Ok(topology)
    }

    /// The same account with regions that are named for the first time, as regions for reading.
    pub fn grown_to(self, names: &[String]) -> Result<Topology> {
        let mut next = self;
        let new: Vec<&String> = names.iter().filter(|name| next.find(name).is_none()).collect();
        if !new.is_empty() {
            next.number += 1;
        }
        for name in new {
            next.push(name)?;
        }
        next.settle();
        Ok(next)
    }

    /// A new region, or one that had left and has its old number back.
    pub fn adding(&self, name: &str) -> Result<(Topology, Region)> {
        let mut next = self.changed();
        match self.find(name) {
            Some(known) if known.state == RegionState::Retired => next.set_state(known.id, RegionState::Seeding),
            Some(_) => {
                return Err(Error::bad_request(format!(
                    "The account has the region {name} already."
                )));
            }
            None => {
                next.push(name)?;
                let id = next.regions.last().map_or(RegionId(0), |region| region.id);
                next.set_state(id, RegionState::Seeding);
            }
        }
        next.settle();
        let region = next.named(name)?.clone();
        Ok((next, region))
    }

    /// A region that has taken over everything begins to serve.
    pub fn seeded(&self, region: RegionId) -> Result<Topology> {
        self.moved(region, RegionState::Seeding, RegionState::Online)
    }

    /// A region begins to leave.
    pub fn draining(&self, region: RegionId) -> Result<Topology> {
        if self.writer().id == region {
            return Err(Error::bad_request("The region that takes writes cannot be removed."));
        }
        let mut next = self.changed();
        next.set_state(region, RegionState::Draining);
        next.settle();
        Ok(next)
    }

    /// It has left.
    pub fn retired(&self, region: RegionId) -> Result<Topology> {
        self.moved(region, RegionState::Draining, RegionState::Retired)
    }

    fn moved(&self, region: RegionId, from: RegionState, to: RegionState) -> Result<Topology> {
        let found = self.regions.iter().find(|known| known.id == region);
        if found.is_none_or(|known| known.state != from) {
            return Err(refused("The region is in another state by now."));
        }
        let mut next = self.changed();
        next.set_state(region, to);
        next.settle();
        Ok(next)
    }

    /// Regions that serve come first, each group in its old order.
    fn settle(&mut self) {
        self.regions.sort_by_key(|region| region.state != RegionState::Online);
    }

    fn push(&mut self, name: &str) -> Result<()> {
        if name.trim().is_empty() {
            return Err(Error::bad_request("A region needs a name."));
        }
        let is_usual = |letter: char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_' | '.' | '(' | ')');
        if name.chars().count() > NAME_CHARACTERS_MAX || !name.chars().all(is_usual) {
            return Err(Error::bad_request(format!(
                "The name of a region has letters, digits, blanks, hyphens, underscores, dots and parentheses, {NAME_CHARACTERS_MAX} at most."
            )));
        }
        if self.find(name).is_some() {
            return Err(Error::bad_request(format!("The region {name} is named twice.")));
        }
        // Whoever keeps regions in directories goes by letters and digits alone: two names must not mean one place.
        let place = letters(name);
        if place.is_empty() {
            return Err(Error::bad_request("The name of a region needs a letter or a digit."));
        }
        if let Some(other) = self.regions.iter().find(|region| letters(&region.name) == place) {
            return Err(Error::bad_request(format!(
                "The regions {} and {name} differ in neither letters nor digits.",
                other.name
            )));
        }
        let next = self.regions.iter().map(|region| region.id.0 + 1).max().unwrap_or(0);
        self.regions.push(Region {
            id: RegionId(next),
            name: name.to_owned(),
            state: RegionState::Online,
            cut_off: BTreeMap::new(),
            damaged: false,
        });
        Ok(())
    }

    /// The region that takes writes.
    pub fn writer(&self) -> &Region {
        self.regions
            .first()
            .expect("a topology has a region from the beginning, and the last one cannot leave")
    }

    pub fn is_online(&self, region: RegionId) -> bool {
        self.online().any(|online| online.id == region)
    }

    /// The regions that serve, the writer first.
    pub fn online(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.state == RegionState::Online)
    }

    /// The regions that have data here: all but those that have left.
    pub fn present(&self) -> impl Iterator<Item = &Region> {
        self.regions
            .iter()
            .filter(|region| region.state != RegionState::Retired)
    }

    /// A region by name, in any spelling clients use: case and blanks do not count.
    pub fn find(&self, name: &str) -> Option<&Region> {
        let wanted = normalized(name);
        self.regions.iter().find(|region| normalized(&region.name) == wanted)
    }

    /// A region that is there, in whatever state.
    pub fn named(&self, name: &str) -> Result<&Region> {
        self.find(name)
            .filter(|region| region.state != RegionState::Retired)
            .ok_or_else(|| Error::new(Status::NOT_FOUND, format!("The account has no region {name}.")))
    }

    /// The planned change of the write region: `target` takes over, the old writer stays as the next in line.
    pub fn with_writer(&self, target: RegionId) -> Result<Topology> {
        if self.writer().id == target {
            return Err(Error::bad_request("The region takes writes already."));
        }
        if !self.is_online(target) {
            return Err(refused("The region is not online and cannot take over."));
        }
        let mut next = self.changed();
        next.epoch = Epoch(self.epoch.0 + 1);
        next.move_to_front(target);
        // Regions that serve have given up whatever was noted of them.
        let online = next
            .regions
            .iter_mut()
            .filter(|region| region.state == RegionState::Online);
        online.for_each(|region| region.cut_off.clear());
        Ok(next)
    }

    /// The same regions in a new epoch, for something that starts over within it.
    pub fn in_next_epoch(&self) -> Topology {
        Topology {
            epoch: Epoch(self.epoch.0 + 1),
            ..self.changed()
        }
    }

    /// The same once more, under a number of its own: whatever was to follow the one before cannot any more.
    pub fn renumbered(&self) -> Topology {
        self.changed()
    }

    /// Takes a region out, whatever its state of replication, also one that is only on its way. When it took writes, `heir`
    /// takes over.
    pub fn without(&self, region: RegionId, heir: Option<RegionId>) -> Result<Topology> {
        if let Ok(next) = self.moved(region, RegionState::Seeding, RegionState::Offline) {
            return Ok(next);
        }
        if !self.is_online(region) {
            return Err(Error::bad_request("The region is offline already."));
        }
        if self.online().count() == 1 {
            return Err(Error::bad_request(
                "The last region of an account cannot be taken offline.",
            ));
        }
        let mut next = match heir.filter(|_| self.writer().id == region) {
            Some(heir) => self.with_writer(heir)?,
            None if self.writer().id == region => return Err(refused("No other region can take over.")),
            None => self.changed(),
        };
        // One whose data is damaged has nothing to wait for: it is made anew from the others.
        let own = next.regions.iter_mut().find(|known| known.id == region);
        let is_damaged = own.is_some_and(|own| std::mem::take(&mut own.damaged));
        let state = match is_damaged {
            true => RegionState::Seeding,
            false => RegionState::Offline,
        };
        next.set_state(region, state);
        next.settle();
        Ok(next)
    }

    /// The data of a region is damaged. One that only reads serves nothing until it has been made anew; one that takes writes
    /// keeps its place until another takes over.
    pub fn harmed(&self, id: RegionId) -> Topology {
        let mut next = self.changed();
        let writes = self.writer().id == id;
        for region in next.regions.iter_mut().filter(|region| region.id == id) {
            region.damaged = writes;
            if !writes && region.state == RegionState::Online {
                region.state = RegionState::Seeding;
            }
        }
        next.settle();
        next
    }

    /// Notes what a region has that is not part of the account. What was noted before and lies further back stays.
    pub fn cut_off(&mut self, id: RegionId, logs: impl Iterator<Item = (LogId, Lsn)>) {
        let Some(region) = self.regions.iter_mut().find(|region| region.id == id) else {
            return;
        };
        for (log, lsn) in logs {
            let known = region.cut_off.entry(log).or_insert(lsn);
            *known = (*known).min(lsn);
        }
    }

    /// A region that was out begins to come back: it gives up what it has alone and takes over what there is.
    pub fn returning(&self, region: RegionId) -> Result<Topology> {
        if self.is_online(region) {
            return Err(Error::bad_request("The region is online already."));
        }
        self.moved(region, RegionState::Offline, RegionState::Seeding)
    }

    /// What a region has that is not part of the account has been kept elsewhere, up to these LSNs; logs that are not named,
    /// all of it.
    pub fn with_cut_off(&self, id: RegionId, left: BTreeMap<LogId, Lsn>) -> Topology {
        let mut next = self.changed();
        if let Some(region) = next.regions.iter_mut().find(|region| region.id == id) {
            region.cut_off = left;
        }
        next
    }

    /// The order in which regions take over: the readers that serve, each named once. Who writes is not changed this way.
    pub fn prioritized(&self, readers: &[RegionId]) -> Result<Topology> {
        let mut wanted: Vec<RegionId> = self.online().skip(1).map(|region| region.id).collect();
        let mut given = readers.to_vec();
        wanted.sort();
        given.sort();
        if wanted != given {
            return Err(Error::bad_request(
                "An order of failover names every region for reading that is online, each once, and not the one that takes writes.",
            ));
        }
        let mut next = self.changed();
        let writer = self.writer().id;
        let place = |region: &Region| match region.id == writer {
            true => 0,
            false => 1 + readers.iter().position(|id| *id == region.id).unwrap_or(readers.len()),
        };
        next.regions.sort_by_key(place);
        Ok(next)
    }

    fn changed(&self) -> Topology {
        Topology {
            number: self.number + 1,
            ..self.clone()
        }
    }

    fn move_to_front(&mut self, region: RegionId) {
        self.regions.sort_by_key(|other| other.id != region);
    }

    fn set_state(&mut self, id: RegionId, state: RegionState) {
        for region in self.regions.iter_mut().filter(|region| region.id == id) {
            region.state = state;
            if state == RegionState::Online {
                region.cut_off.clear();
            }
        }
    }

    /// As text that a person can read.
    pub fn to_text(&self) -> Vec<u8> {
        let mut root = Object::new();
        root.insert("number", Value::Number(Number::from(self.number as i64)));
        root.insert("epoch", Value::Number(Number::from(i64::from(self.epoch.0))));
        let region = |region: &Region| {
            let mut object = Object::new();
            object.insert("id", Value::Number(Number::from(i64::from(region.id.0))));
            object.insert("name", Value::from(region.name.as_str()));
            object.insert("state", Value::from(region.state.name()));
            let cut_off = region.cut_off.iter();
            let cut_off = cut_off.map(|(log, lsn)| (log.to_string(), Value::Number(Number::from(lsn.0 as i64))));
            object.insert("cutOff", Value::Object(cut_off.collect()));
            if region.damaged {
                object.insert("damaged", Value::Bool(true));
            }
            Value::Object(object)
        };
        root.insert("regions", Value::Array(self.regions.iter().map(region).collect()));
        let mut text = Vec::new();
        json::print(&Value::Object(root), &mut text);
        text
    }

    pub fn from_text(text: &[u8]) -> Result<Topology> {
        let malformed = || Error::new(Status::INTERNAL, "the stored topology is malformed");
        let root = json::parse_value(text).map_err(|_| malformed())?;
        let whole = |value: &Value, name: &str| value.get(name)?.as_number()?.as_i64();
        let region = |value: &Value| {
            let position = |(log, lsn): (&str, &Value)| {
                let lsn = u64::try_from(lsn.as_number()?.as_i64()?).ok()?;
                Some((LogId(log.parse().ok()?), Lsn(lsn)))
            };
            let cut_off = match value.get("cutOff") {
                None => BTreeMap::new(),
                Some(Value::Object(cut_off)) => cut_off.iter().map(position).collect::<Option<_>>()?,
                Some(_) => return None,
            };
            let damaged = match value.get("damaged") {
                None => false,
                Some(Value::Bool(damaged)) => *damaged,
                Some(_) => return None,
            };
            Some(Region {
                cut_off,
                damaged,
                id: RegionId(u32::try_from(whole(value, "id")?).ok()?),
                name: value.get("name")?.as_str()?.to_owned(),
                state: RegionState::named(value.get("state")?.as_str()?)?,
            })
        };
        let Some(Value::Array(regions)) = root.get("regions") else {
            return Err(malformed());
        };
        let regions: Option<Vec<Region>> = regions.iter().map(region).collect();
        let number = whole(&root, "number").and_then(|number| u64::try_from(number).ok());
        let epoch = whole(&root, "epoch").and_then(|epoch| u32::try_from(epoch).ok());
        let topology = Topology {
            number: number.ok_or_else(malformed)?,
            epoch: Epoch(epoch.ok_or_else(malformed)?),
            regions: regions.ok_or_else(malformed)?,
        };
        match topology.regions.first() {
            Some(writer) if writer.state == RegionState::Online => Ok(topology),
            _ => Err(malformed()),
        }
    }
}

/// Whether two names are of one region, in any spelling clients use: case and blanks do not count.
pub fn is_same_region(one: &str, other: &str) -> bool {
    normalized(one) == normalized(other)
}

fn normalized(name: &str) -> String {
    name.chars()
        .filter(|character| !matches!(character, ' ' | '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// What is left of a name where only letters and digits count.
fn letters(name: &str) -> String {
    let letters = name.chars().filter(|character| character.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn refused(message: &str) -> Error {
    Error::new(Status::PRECONDITION_FAILED, message)
}

#[cfg(test)]
mod tests;
