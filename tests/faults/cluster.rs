//! Faults of a cluster.

use crate::scene::{Key, Phase, Scene, Setting, store_key};
use crate::support::redis::Cluster;

fn over(setting: Setting, cluster: &Cluster) -> Scene {
    let urls = cluster.urls();
    let urls = || urls.iter().map(String::as_str);
    let scene = setting.start(|builder| builder.open_cluster(urls()).unwrap());
    scene.warm()
}

/// Returns keys of this node, one for each phase.
fn keys_on(cluster: &Cluster, node: usize) -> Vec<Key> {
    let phases = [Phase::Before, Phase::During, Phase::After];
    let names = (0..).filter(|key| cluster.server_of(&store_key(*key)) == Some(node));
    let keys = names.zip(phases);
    keys.map(|(name, since)| Key { name, since }).collect()
}

#[test]
fn a_primary_whose_replica_takes_over() {
    let cluster = Cluster::with_replicas();
    let mut keys = keys_on(&cluster, 0);
    keys.extend(keys_on(&cluster, 1));
    let mut scene = over(Setting::new().about(keys), &cluster);
    scene.strike();
    cluster.fail_over(0);
    let run = scene.recovers().felt_by_each_node();
    // Requests that were not replicated yet are counted anew.
    run.loses(|_| 1).row("failover in a cluster");
}

#[test]
fn a_slot_that_moves_to_another_primary() {
    let cluster = Cluster::start();
    let keys = keys_on(&cluster, 0);
    let slots: Vec<String> = keys.iter().map(|key| store_key(key.name)).collect();
    let mut scene = over(Setting::patient().about(keys), &cluster);
    scene.strike();
    let moving: Vec<_> = slots.iter().map(|key| cluster.open_slot(key, 1)).collect();
    scene.lasts();
    for slot in moving {
        slot.close();
    }
    let run = scene.recovers().felt_by_keys(&[]);
    run.loses(|_| 0).row("a slot that moves, in a cluster");
}
