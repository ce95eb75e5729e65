//! `gripfast replicas`: the replicas of the service that a gateway belongs to.

use super::admin_client::{AdminClient, AdminReply};
use super::args::{GlobalArgs, OutputFormat, ReplicasArgs};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table};
use super::status::{latency, short_duration};
use gripfast_gateway::api::types::{ClusterView, FleetView, ReplicaView};

/// Asks the gateway and prints the replicas.
pub(crate) fn run(
    global: &GlobalArgs,
    args: &ReplicasArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let (AdminReply { json, value: replicas }, fleet) = super::local_host::runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        let replicas = gateway.get::<Vec<ReplicaView>>("/replicas").await?;
        Ok::<_, CommandError>((replicas, gateway.get::<FleetView>("/status").await?.value))
    })?;
    match args.output.form {
        OutputFormat::Json => screen.raw_json(&json)?,
        OutputFormat::Text if replicas.is_empty() => {
            let text = format!("the gateway at {url} runs alone, or has not joined its service");
            let hint = "the table `cluster` of the config makes it a replica; `gripfast status` shows why it has not joined";
            return Err(FailureReport::new(Exit::General, text).with_hint(hint).into());
        }
        OutputFormat::Text => show(&replicas, fleet.cluster.as_ref(), screen)?,
    }
    Ok(Exit::Ok)
}

fn show(
    replicas: &[ReplicaView],
    cluster: Option<&ClusterView>,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let titles = ["REPLICA", "STATE", "SESSIONS", "FORWARDS/S", "STORE", "CONFIG", "VERSION", "ADDRESS"];
    let mut table = Table::new(titles);
    for replica in replicas {
        let mark = if replica.is_self { " (asked)" } else { "" };
        table.row([
            &format!("{}{mark}", replica.name),
            &replica.state,
            &replica.sessions.to_string(),
            &format!("{:.1}", replica.forwards_per_second),
            &latency(replica.store_latency_ms),
            &replica.config_hash,
            &replica.version,
            &replica.advertise,
        ]);
    }
    screen.table(table)?;
    if let Some(cause) = cluster.and_then(|cluster| cluster.cause.as_ref()) {
        screen.warning(&format!("{cause}; the figures are those of the last heartbeat"))?;
    }
    for replica in replicas {
        if let Some(lost) = replica.lost_ms {
            let (name, ago) = (&replica.name, short_duration(lost));
            screen.warning(&format!("replica {name} was lost {ago} ago; its row has its last figures"))?;
        }
    }
    if differ(replicas, |replica| &replica.config_hash) {
        screen.warning("the replicas have different servers, clients or budgets in their configs")?;
    }
    if differ(replicas, |replica| &replica.version) {
        screen.warning("the replicas have different versions of gripfast")?;
    }
    Ok(())
}

/// Returns whether replicas that are not lost differ.
fn differ(replicas: &[ReplicaView], of: impl Fn(&ReplicaView) -> &String) -> bool {
    let mut present = replicas.iter().filter(|replica| replica.lost_ms.is_none()).map(of);
    let first = present.next();
    present.any(|other| Some(other) != first)
}
