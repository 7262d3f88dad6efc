//! Which regions an account has, which of them takes writes, and what may become of them. Pure: every operation answers the
//! next topology or says why it is refused.
//!
//! Invariants: the regions stand in the order of failover priority, the first one takes writes and is online; numbers of
//! regions are given once; `number` rises with every change and `epoch` with every change of the write region.

use orrery_model::json::{self, Number, Object, Value};
use orrery_model::{Epoch, Error, Result, Status};

/// Number of a region in its account. Given once, also to a region that leaves and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    Online,
    /// Taken out: it serves nothing and follows nobody.
    Offline,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub id: RegionId,
    /// As clients know it.
    pub name: String,
    pub state: RegionState,
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
        next.regions.sort_by_key(|region| region.state == RegionState::Offline);
        Ok(next)
    }

    fn push(&mut self, name: &str) -> Result<()> {
        if name.trim().is_empty() {
            return Err(Error::bad_request("A region needs a name."));
        }
        if self.find(name).is_some() {
            return Err(Error::bad_request(format!("The region {name} is named twice.")));
        }
        let next = self.regions.iter().map(|region| region.id.0 + 1).max().unwrap_or(0);
        self.regions.push(Region {
            id: RegionId(next),
            name: name.to_owned(),
            state: RegionState::Online,
        });
        Ok(())
    }

    /// The region that takes writes.
    pub fn writer(&self) -> &Region {
        self.regions
            .first()
            .expect("a topology has a region from the beginning and loses none")
    }

    pub fn is_online(&self, region: RegionId) -> bool {
        self.online().any(|online| online.id == region)
    }

    /// The regions that serve, the writer first.
    pub fn online(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().filter(|region| region.state == RegionState::Online)
    }

    /// A region by name, in any spelling clients use: case and blanks do not count.
    pub fn find(&self, name: &str) -> Option<&Region> {
        let wanted = normalized(name);
        self.regions.iter().find(|region| normalized(&region.name) == wanted)
    }

    pub fn named(&self, name: &str) -> Result<&Region> {
        self.find(name)
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
        Ok(next)
    }

    /// Takes a region out, whatever its state of replication. When it took writes, `heir` takes over.
    pub fn without(&self, region: RegionId, heir: Option<RegionId>) -> Result<Topology> {
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
        next.set_state(region, RegionState::Offline);
        // Regions that serve come first, each group in its old order.
        next.regions.sort_by_key(|region| region.state == RegionState::Offline);
        Ok(next)
    }

    /// Takes a region in again: as a region for reading, never as the writer.
    pub fn with(&self, region: RegionId) -> Result<Topology> {
        if self.is_online(region) {
            return Err(Error::bad_request("The region is online already."));
        }
        let mut next = self.changed();
        next.set_state(region, RegionState::Online);
        next.regions.sort_by_key(|region| region.state == RegionState::Offline);
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
            object.insert("online", Value::Bool(region.state == RegionState::Online));
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
            let online = matches!(value.get("online"), Some(Value::Bool(true)));
            Some(Region {
                id: RegionId(u32::try_from(whole(value, "id")?).ok()?),
                name: value.get("name")?.as_str()?.to_owned(),
                state: if online {
                    RegionState::Online
                } else {
                    RegionState::Offline
                },
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

fn normalized(name: &str) -> String {
    name.chars()
        .filter(|character| !matches!(character, ' ' | '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

fn refused(message: &str) -> Error {
    Error::new(Status::PRECONDITION_FAILED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Topology {
        Topology::new(&["West US", "North Europe", "Southeast Asia"].map(str::to_owned)).unwrap()
    }

    fn names(topology: &Topology) -> Vec<&str> {
        topology.online().map(|region| region.name.as_str()).collect()
    }

    #[test]
    fn a_planned_change_puts_the_target_first_in_a_new_epoch() {
        let before = three();
        let after = before.with_writer(RegionId(2)).unwrap();
        assert_eq!(names(&after), ["Southeast Asia", "West US", "North Europe"]);
        assert_eq!((after.number, after.epoch), (2, Epoch(2)));
        assert_eq!(
            before.with_writer(RegionId(0)).unwrap_err().status(),
            Status::BAD_REQUEST
        );
    }

    #[test]
    fn a_region_that_goes_and_comes_back_keeps_its_number_and_never_writes_at_once() {
        let gone = three().without(RegionId(0), Some(RegionId(1))).unwrap();
        assert_eq!(names(&gone), ["North Europe", "Southeast Asia"]);
        let back = gone.with(RegionId(0)).unwrap();
        assert_eq!(names(&back), ["North Europe", "Southeast Asia", "West US"]);
        assert_eq!(back.named("westus").unwrap().id, RegionId(0));
    }

    #[test]
    fn what_would_leave_no_writer_is_refused() {
        let two = three().without(RegionId(2), None).unwrap();
        assert_eq!(two.epoch, Epoch(1), "a reader that goes changes no epoch");
        let refusal = two.without(RegionId(0), None).unwrap_err();
        assert_eq!(refusal.status(), Status::PRECONDITION_FAILED);
        let refusal = two.with_writer(RegionId(2)).unwrap_err();
        assert_eq!(refusal.status(), Status::PRECONDITION_FAILED);
        let one = two.without(RegionId(1), None).unwrap();
        assert_eq!(
            one.without(RegionId(0), Some(RegionId(1))).unwrap_err().status(),
            Status::BAD_REQUEST
        );
    }

    #[test]
    fn a_stored_topology_reads_back() {
        let topology = three().without(RegionId(0), Some(RegionId(1))).unwrap();
        assert_eq!(Topology::from_text(&topology.to_text()).unwrap(), topology);
        for damaged in [&b"{}"[..], b"{\"number\":1,\"epoch\":1,\"regions\":[]}", b"["] {
            assert!(Topology::from_text(damaged).is_err());
        }
    }

    #[test]
    fn names_are_unique_in_every_spelling() {
        assert!(Topology::new(&["West US".to_owned(), "west-us".to_owned()]).is_err());
        assert!(Topology::new(&[]).is_err());
    }
}
