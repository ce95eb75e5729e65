//! `gripfast replicas`: the replicas of the service that a gateway belongs to.

use super::admin_client::{AdminClient, AdminReply};
use super::args::{GlobalArgs, OutputFormat, ReplicasArgs};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::render::{Screen, Table};
use gripfast_gateway::api::types::ReplicaView;

/// Asks the gateway and prints the replicas.
pub(crate) fn run(
    global: &GlobalArgs,
    args: &ReplicasArgs,
    screen: &mut Screen,
) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    let AdminReply { json, value: replicas } = super::local_host::runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        gateway.get::<Vec<ReplicaView>>("/replicas").await
    })?;
    match args.output.form {
        OutputFormat::Json => screen.raw_json(&json)?,
        OutputFormat::Text if replicas.is_empty() => {
            let text = format!("the gateway at {url} runs alone, or has not joined its service");
            let hint = "the table `cluster` of the config makes it a replica; `gripfast status` shows why it has not joined";
            return Err(FailureReport::new(Exit::General, text).with_hint(hint).into());
        }
        OutputFormat::Text => show(&replicas, screen)?,
    }
    Ok(Exit::Ok)
}

fn show(replicas: &[ReplicaView], screen: &mut Screen) -> Result<(), CommandError> {
    let mut table = Table::new(["REPLICA", "ADDRESS", "VERSION", "CONFIG", "SESSIONS"]);
    for replica in replicas {
        let mark = if replica.is_self { " (asked)" } else { "" };
        table.row([
            &format!("{}{mark}", replica.name),
            &replica.advertise,
            &replica.version,
            &replica.config_hash,
            &replica.sessions.to_string(),
        ]);
    }
    screen.table(table)?;
    if differ(replicas, |replica| &replica.config_hash) {
        screen.warning("the replicas have different servers, clients or budgets in their configs")?;
    }
    if differ(replicas, |replica| &replica.version) {
        screen.warning("the replicas have different versions of gripfast")?;
    }
    Ok(())
}

fn differ(replicas: &[ReplicaView], of: impl Fn(&ReplicaView) -> &String) -> bool {
    replicas.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
}
