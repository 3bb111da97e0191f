use super::*;
use crate::{About, Entry, Topology};
use domain::WorkerId;
use domain::session::Role;
use proptest::prelude::*;

fn member(id: u32, incarnation: u64, port: u16) -> Member {
    let address: crate::Address = format!("h:{port}").parse().expect("an address");
    let entry = Entry {
        id: WorkerId(id),
        incarnation: Incarnation(incarnation),
        name: format!("worker-{id}"),
        role: Role::Decode,
        address: address.clone(),
        ops: None,
        model: String::new(),
        layout: 0,
        topology: Topology::default(),
    };
    Member { key: Key(id.to_string()), address, about: About::Worker(entry) }
}

fn key(id: u32) -> Key {
    Key(id.to_string())
}

fn put(revision: u64, member: Member) -> Sight {
    Sight::Put { revision, member: Box::new(member) }
}

fn gone(revision: u64, id: u32) -> Sight {
    Sight::Gone { revision, key: key(id) }
}

fn all(revision: u64, members: impl IntoIterator<Item = Member>) -> Sight {
    Sight::All { revision, members: members.into_iter().collect() }
}

#[track_caller]
fn check(sights: Vec<Sight>, wanted: &[Change]) {
    let mut table = Table::default();
    let changes: Vec<Change> = sights.into_iter().flat_map(|sight| table.handle(sight)).collect();
    assert_eq!(changes, wanted);
}

#[test]
fn workers_join_change_and_leave() {
    let [first, again] = [member(1, 10, 1), member(1, 20, 2)];
    check(
        vec![all(1, []), put(2, first.clone()), put(3, again.clone()), gone(4, 1)],
        &[Change::Joined(first), Change::Changed(again), Change::Left(key(1))],
    );
}

#[test]
fn what_is_shown_again_or_late_changes_nothing() {
    let [first, again] = [member(1, 10, 1), member(1, 20, 2)];
    let joined = Change::Joined(first.clone());
    check(
        vec![put(2, first.clone()), put(2, first.clone()), put(1, again.clone()), gone(1, 1)],
        std::slice::from_ref(&joined),
    );
    // A life that is over, shown as if it were new.
    check(vec![put(2, again.clone()), put(3, first.clone())], &[Change::Joined(again)]);
    // Several workers at one revision, as a transaction writes them.
    check(vec![put(2, first), gone(2, 2), gone(2, 2)], &[joined]);
}

#[test]
fn a_view_of_all_is_the_truth() {
    let [one, two, three] = [member(1, 1, 1), member(2, 1, 2), member(3, 1, 3)];
    let before = [Change::Joined(one.clone()), Change::Joined(two.clone())];
    // What was missed meanwhile, and nothing twice.
    check(
        vec![all(5, [one.clone(), two.clone()]), all(9, [two.clone(), three.clone()])],
        &[before.as_slice(), &[Change::Left(key(1)), Change::Joined(three.clone())]].concat(),
    );
    // A directory that was restored counts from less, and may list an earlier life.
    let earlier = Member { address: "h:9".parse().expect("an address"), ..member(2, 0, 9) };
    check(
        vec![all(5, [one.clone(), two]), all(2, [one.clone(), earlier.clone()]), gone(3, 1)],
        &[before.as_slice(), &[Change::Changed(earlier), Change::Left(key(1))]].concat(),
    );
    // A directory that lost everything.
    check(
        vec![all(5, [one.clone()]), all(1, []), put(2, one.clone())],
        &[Change::Joined(one.clone()), Change::Left(key(1)), Change::Joined(one)],
    );
}

#[test]
fn too_many_are_left_out_until_there_is_room() {
    let mut table = Table::default();
    let most = u32::try_from(WORKERS_MAX).expect("it is small");
    let changes = table.handle(all(1, (0..most).map(|id| member(id, 1, 1))));
    assert_eq!((changes.len(), table.left_out()), (WORKERS_MAX, 0));
    assert_eq!(table.handle(put(2, member(most, 1, 1))), []);
    assert_eq!((table.left_out(), table.has_room_again()), (1, false));
    assert_eq!(table.handle(gone(3, 0)), [Change::Left(key(0))]);
    assert!(table.has_room_again());
    assert_eq!(table.handle(all(4, (1..=most).map(|id| member(id, 1, 1)))), [Change::Joined(member(most, 1, 1))]);
    assert_eq!((table.members().len(), table.left_out(), table.has_room_again()), (WORKERS_MAX, 0, false));
}

/// What happens in the directory.
#[derive(Clone, Debug)]
enum Act {
    /// A worker registers its next life, at this port.
    Register(u32, u16),
    /// A worker is removed.
    Remove(u32),
    /// Nothing.
    Rest,
}

/// How what happened is shown.
#[derive(Clone, Debug)]
enum Show {
    /// At once.
    Now,
    /// Never: the reader has to see all again before it is shown anything more.
    Lost,
    /// At once, and what was shown some steps ago once more.
    Repeat(usize),
    /// At once, and then a life that is over, as if it were new.
    Lie(u32),
    /// With all workers.
    All,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4_u32, 1..4_u16).prop_map(|(id, port)| Act::Register(id, port)),
        (0..4_u32).prop_map(Act::Remove),
        Just(Act::Rest),
    ]
}

fn show() -> impl Strategy<Value = Show> {
    prop_oneof![
        4 => Just(Show::Now),
        1 => Just(Show::Lost),
        2 => (0..8_usize).prop_map(Show::Repeat),
        1 => (0..4_u32).prop_map(Show::Lie),
        1 => Just(Show::All),
    ]
}

/// A directory, and how its reader sees it.
#[derive(Default)]
struct World {
    revision: u64,
    listed: BTreeMap<Key, Member>,
    shown: Vec<Sight>,
    /// The reader missed something since it saw all.
    missed: bool,
}

impl World {
    fn act(&mut self, act: Act) -> Option<Sight> {
        self.revision += 1;
        let sight = match act {
            Act::Register(id, port) => {
                let member = member(id, self.revision, port);
                self.listed.insert(key(id), member.clone());
                put(self.revision, member)
            }
            Act::Remove(id) => {
                self.listed.remove(&key(id))?;
                gone(self.revision, id)
            }
            Act::Rest => return None,
        };
        self.shown.push(sight.clone());
        Some(sight)
    }

    fn all(&mut self) -> Sight {
        self.missed = false;
        all(self.revision, self.listed.values().cloned())
    }

    fn show(&mut self, sight: Option<Sight>, show: Show) -> Vec<Sight> {
        let lie = match show {
            // An earlier life is shown only of workers that are listed: of others, nobody can tell.
            Show::Lie(id) if self.listed.contains_key(&key(id)) => Some(put(self.revision, member(id, 0, 9))),
            _ => None,
        };
        match show {
            Show::Lost => {
                self.missed = true;
                Vec::new()
            }
            Show::All => vec![self.all()],
            _ if self.missed => vec![self.all()],
            Show::Now | Show::Lie(_) => sight.into_iter().chain(lie).collect(),
            Show::Repeat(ago) => {
                let again = self.shown.len().checked_sub(ago + 1).map(|at| self.shown[at].clone());
                sight.into_iter().chain(again).collect()
            }
        }
    }
}

/// Applies changes as a reader does, and checks that each is one.
fn apply(changes: Vec<Change>, known: &mut BTreeMap<Key, Member>) -> Result<(), TestCaseError> {
    for change in changes {
        match change {
            Change::Joined(member) => prop_assert!(known.insert(member.key.clone(), member).is_none()),
            Change::Changed(member) => {
                let before = known.insert(member.key.clone(), member.clone());
                prop_assert!(before.is_some_and(|before| before != member));
            }
            Change::Left(key) => prop_assert!(known.remove(&key).is_some()),
        }
    }
    Ok(())
}

proptest! {
    /// However a directory shows what happens, changes tell no lie about the table, and the table is the directory
    /// whenever the reader has missed nothing.
    #[test]
    fn the_table_is_the_directory_unless_something_was_missed(steps in prop::collection::vec((act(), show()), 1..60)) {
        let (mut world, mut table, mut known) = (World::default(), Table::default(), BTreeMap::new());
        for (act, show) in steps {
            let sight = world.act(act);
            for sight in world.show(sight, show) {
                apply(table.handle(sight), &mut known)?;
            }
            prop_assert!(known.values().eq(table.members()));
            if !world.missed {
                prop_assert!(known.values().eq(world.listed.values()));
            }
        }
        apply(table.handle(world.all()), &mut known)?;
        prop_assert!(known.values().eq(world.listed.values()));
    }
}
