//! What routers take from a directory: whatever that shows, and however late or often, no worker is listed twice, no
//! worker's earlier life replaces a later one, and what is over does not return. Once the directory is right again, all
//! routers see what is listed, have a session with each worker that lives, and keep nothing of others.

use crate::directory::{index_of, life_of};
use crate::event::Life;
use crate::listing::Follower;
use crate::reach::Reached;
use crate::world::World;
use discovery::{Change, Key, Sight};

pub(crate) const NAME: &str = "what is shown late, twice or wrongly lists no worker twice and none that is over";

/// What a follower had of something when it was shown it.
pub(crate) struct Seen {
    /// The follower was shown something later before; the same age is no later.
    is_late: bool,
    is_all: bool,
    is_again: bool,
    /// The worker of an entry, the life that was listed of it, and the one that is shown.
    lives: Option<(Key, Life, Life)>,
}

impl Seen {
    /// Notes what a follower has of a sight before it takes that.
    pub(crate) fn of(follower: &mut Follower, sight: &Sight) -> Self {
        let (revision, is_all) = match sight {
            Sight::All { revision, .. } => (*revision, true),
            Sight::Put { revision, .. } | Sight::Gone { revision, .. } => (*revision, false),
        };
        let lives = match sight {
            Sight::Put { member, .. } => {
                let listed = follower.known.get(&member.key);
                listed.map(|listed| (member.key.clone(), life_of(listed), life_of(member)))
            }
            Sight::All { .. } | Sight::Gone { .. } => None,
        };
        let is_again = !is_all && revision == follower.newest;
        let is_late = !is_all && revision < follower.newest;
        follower.newest = if is_all { revision } else { follower.newest.max(revision) };
        Self { is_late, is_all, is_again, lives }
    }

    /// What was reached by it.
    pub(crate) fn reached(&self, changes: &[Change]) -> Option<Reached> {
        if !changes.is_empty() {
            return None;
        }
        match &self.lives {
            _ if self.is_late => Some(Reached::SightLate),
            Some((_, listed, shown)) if shown < listed => Some(Reached::EarlierLifeShown),
            _ => self.is_again.then_some(Reached::SightAgain),
        }
    }

    /// Errors: the changes that the follower's table makes of it are not right.
    pub(crate) fn check(&self, follower: &Follower, changes: &[Change]) -> Result<(), String> {
        if self.is_late && !changes.is_empty() {
            return Err(format!("what was shown late changes something: {changes:?}"));
        }
        if let Some((key, listed, shown)) = &self.lives
            && shown < listed
            && !changes.is_empty()
        {
            return Err(format!("life {shown} of w{key} is taken for a later one than {listed}"));
        }
        if !self.is_all && changes.len() > 1 {
            return Err(format!("one sight changes several workers: {changes:?}"));
        }
        for change in changes {
            let right = match change {
                Change::Joined(member) => !follower.known.contains_key(&member.key),
                Change::Changed(member) => follower.known.get(&member.key).is_some_and(|known| known != member),
                Change::Left(key) => follower.known.contains_key(key),
            };
            if !right {
                return Err(format!("it is no change: {change:?}"));
            }
        }
        Ok(())
    }
}

/// Errors: a router sees something else than what is listed, or that is not what lives.
pub(crate) fn healed(world: &World) -> Result<(), String> {
    let Some(discovery) = &world.discovery else { return Ok(()) };
    let directory = &discovery.directory;
    for (w, worker) in world.workers.iter().enumerate() {
        let listed = directory.get(w).map(life_of);
        let lives = worker.alive.as_ref().map(|_| worker.life);
        if listed != lives {
            return Err(format!("w{w} is in life {lives:?}, and life {listed:?} is listed"));
        }
    }
    if directory.members().len() > world.workers.len() {
        return Err("a worker is listed that never was".to_owned());
    }
    for (r, router) in world.routers.iter().enumerate() {
        let Some(alive) = &router.alive else { continue };
        let follower = &alive.follower;
        if !follower.known.values().eq(directory.members()) || !follower.table.members().eq(directory.members()) {
            return Err(format!("router {r} does not see what is listed"));
        }
        if let Some(member) = directory.members().find(|member| !alive.links.contains_key(&index_of(&member.key))) {
            return Err(format!("router {r} has no session with w{}, which is listed", member.key));
        }
        let followed = alive.links.keys().chain(alive.dialling.keys()).chain(alive.dials.keys());
        let mut followed = followed.chain(alive.back_off.keys());
        if let Some(w) = followed.find(|&&w| directory.get(w).is_none()) {
            return Err(format!("router {r} keeps something of w{w}, which is not listed"));
        }
    }
    Ok(())
}
