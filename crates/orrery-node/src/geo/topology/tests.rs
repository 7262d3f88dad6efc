//! What may become of an account's regions.

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
    let returning = gone.returning(RegionId(0)).unwrap();
    assert_eq!(names(&returning), ["North Europe", "Southeast Asia"]);
    let again = returning.without(RegionId(0), None).unwrap();
    assert_eq!(again.named("West US").unwrap().state, RegionState::Offline);
    let back = returning.seeded(RegionId(0)).unwrap();
    assert_eq!(names(&back), ["North Europe", "Southeast Asia", "West US"]);
    assert_eq!(back.named("westus").unwrap().id, RegionId(0));
}

#[test]
fn a_damaged_region_is_made_anew_and_one_that_writes_only_when_another_has_taken_over() {
    let reader = three().harmed(RegionId(1));
    assert_eq!(names(&reader), ["West US", "Southeast Asia"]);
    assert_eq!(reader.named(" north-europe").unwrap().state, RegionState::Seeding);
    let writer = three().harmed(RegionId(0));
    assert_eq!(names(&writer).len(), 3);
    assert!(writer.writer().damaged);
    let kept = Topology::from_text(&writer.to_text()).unwrap();
    assert_eq!(kept, writer);
    let another = kept.without(RegionId(2), None).unwrap();
    assert!(another.writer().damaged, "that is forgotten with nobody else");
    let taken_over = another.without(RegionId(0), Some(RegionId(1))).unwrap();
    let back = taken_over.named("West US").unwrap();
    assert_eq!((back.state, back.damaged), (RegionState::Seeding, false));
    assert_eq!(names(&taken_over), ["North Europe"]);
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
    let mut topology = three().without(RegionId(0), Some(RegionId(1))).unwrap();
    topology.cut_off(RegionId(0), [(LogId(3), Lsn(7))].into_iter());
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

#[test]
fn names_that_would_not_fit_into_paths_and_tables_are_refused() {
    let topology = Topology::new(&["West US".to_owned()]).unwrap();
    for name in ["a/b", "../x", "West\nEurope", "50%", "a?b", "c#d", &"x".repeat(65)] {
        assert!(topology.adding(name).is_err(), "{name}");
    }
    for name in ["Österreich Ost", "us-east_1 (new)", "v1.2"] {
        assert!(topology.adding(name).is_ok(), "{name}");
    }
}

#[test]
fn names_that_would_share_a_directory_are_refused() {
    for pair in [["US (East)", "US East"], ["a.b", "AB"]] {
        let refusal = Topology::new(&pair.map(str::to_owned)).unwrap_err();
        assert_eq!(refusal.status(), Status::BAD_REQUEST, "{pair:?}");
        let one = Topology::new(&[pair[0].to_owned()]).unwrap();
        assert!(one.adding(pair[1]).is_err() && one.grown_to(&[pair[1].to_owned()]).is_err());
    }
    assert!(Topology::new(&["()".to_owned()]).is_err(), "a name of no letters");
}

#[test]
fn an_order_of_failover_names_all_readers_and_leaves_the_writer() {
    let three = three();
    let turned = three.prioritized(&[RegionId(2), RegionId(1)]).unwrap();
    assert_eq!(names(&turned), ["West US", "Southeast Asia", "North Europe"]);
    assert_eq!((turned.number, turned.epoch), (2, Epoch(1)));
    let of = |ids: &[u32]| ids.iter().copied().map(RegionId).collect::<Vec<_>>();
    for wrong in [&[1][..], &[1, 1], &[0, 1, 2], &[1, 2, 7]] {
        assert!(three.prioritized(&of(wrong)).is_err(), "{wrong:?}");
    }
    let two = three.without(RegionId(1), None).unwrap();
    assert!(two.prioritized(&of(&[2, 1])).is_err(), "one that is out has no place");
}

#[test]
fn what_was_cut_off_is_forgotten_as_it_is_kept_elsewhere() {
    let mut gone = three().without(RegionId(0), Some(RegionId(1))).unwrap();
    gone.cut_off(RegionId(0), [(LogId(3), Lsn(7)), (LogId(4), Lsn(1))].into_iter());
    let left = BTreeMap::from([(LogId(3), Lsn(9))]);
    let half = gone.with_cut_off(RegionId(0), left.clone());
    assert_eq!(half.named("West US").unwrap().cut_off, left);
    assert_eq!(half.number, gone.number + 1);
}

#[test]
fn a_region_that_is_added_serves_when_it_is_seeded_and_keeps_its_number_for_good() {
    let (adding, added) = three().adding("Brazil South").unwrap();
    assert_eq!((added.id, added.state), (RegionId(3), RegionState::Seeding));
    assert_eq!(names(&adding), ["West US", "North Europe", "Southeast Asia"]);
    let four = adding.seeded(added.id).unwrap();
    assert_eq!(names(&four).last(), Some(&"Brazil South"));
    let leaving = four.draining(RegionId(1)).unwrap();
    assert_eq!(names(&leaving), ["West US", "Southeast Asia", "Brazil South"]);
    let left = leaving.retired(RegionId(1)).unwrap();
    assert!(left.named("North Europe").is_err());
    assert_eq!(left.present().count(), 3);
    let (_, back) = left.adding("north europe").unwrap();
    assert_eq!(back.id, RegionId(1));
    let (_, new) = left.adding("Japan East").unwrap();
    assert_eq!(new.id, RegionId(4), "numbers are not given twice");
}

#[test]
fn regions_are_not_added_twice_and_the_writer_is_not_removed() {
    let three = three();
    for refused in [three.adding("westus").map(drop), three.draining(RegionId(0)).map(drop)] {
        assert_eq!(refused.unwrap_err().status(), Status::BAD_REQUEST);
    }
    assert_eq!(
        three.seeded(RegionId(1)).unwrap_err().status(),
        Status::PRECONDITION_FAILED
    );
    let (adding, added) = three.adding("Brazil South").unwrap();
    assert!(adding.with_writer(added.id).is_err(), "it has not everything yet");
    assert_eq!(Topology::from_text(&adding.to_text()).unwrap(), adding);
}
