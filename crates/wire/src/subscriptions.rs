//! Subscriptions: the filter of a modern `subscriptions/listen` stream, its acknowledgement, and the update
//! notification of a resource in both eras.

use std::borrow::Cow;

use gripfast_core::json_text::{Json, JsonText};

use crate::era::meta;
use crate::patch::{Object, Patch};
use crate::{Id, envelope, raw};

/// The method that opens a stream of changes in the modern era.
pub const LISTEN: &str = "subscriptions/listen";

/// Notifications that a stream subscribes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Changed tools.
    pub tools: bool,
    /// Changed prompts.
    pub prompts: bool,
    /// A changed list of resources.
    pub resources: bool,
    /// Changes of these resources.
    pub uris: Vec<String>,
    /// Status of these tasks.
    pub tasks: Vec<String>,
}

impl Filter {
    const TOOLS: &'static str = "toolsListChanged";
    const PROMPTS: &'static str = "promptsListChanged";
    const RESOURCES: &'static str = "resourcesListChanged";
    const URIS: &'static str = "resourceSubscriptions";
    const TASKS: &'static str = "taskIds";

    /// Reads the `notifications` of a `subscriptions/listen` request, or of its acknowledgement. Members of the wrong
    /// type are ignored.
    pub fn read(params: Option<&Json>) -> Self {
        let params = params.and_then(|params| Object::parse(params).ok());
        let Some(wanted) = params.and_then(|params| params.object("notifications")) else {
            return Self::default();
        };
        let texts = |member| {
            let items = wanted.get(member).and_then(raw::items).unwrap_or_default();
            items.into_iter().filter_map(raw::text).map(Cow::into_owned).collect()
        };
        Self {
            tools: wanted.flag(Self::TOOLS),
            prompts: wanted.flag(Self::PROMPTS),
            resources: wanted.flag(Self::RESOURCES),
            uris: texts(Self::URIS),
            tasks: texts(Self::TASKS),
        }
    }

    /// Returns whether the filter subscribes to nothing.
    pub fn is_empty(&self) -> bool {
        !self.tools && !self.prompts && !self.resources && self.uris.is_empty() && self.tasks.is_empty()
    }

    /// The filter as parameters, without a request context.
    pub fn to_params(&self) -> JsonText {
        let yes = raw::owned(b"true".to_vec());
        let mut wanted = Patch::new();
        for (is_wanted, member) in
            [(self.tools, Self::TOOLS), (self.prompts, Self::PROMPTS), (self.resources, Self::RESOURCES)]
        {
            if is_wanted {
                wanted = wanted.set(member, &yes);
            }
        }
        for (named, member) in [(&self.uris, Self::URIS), (&self.tasks, Self::TASKS)] {
            if !named.is_empty() {
                let texts = JsonText::of(named).expect("texts can always be written to memory");
                wanted = wanted.set_owned(member, texts);
            }
        }
        Patch::new().set_owned("notifications", wanted.to_object()).to_object()
    }
}

/// First message of a stream: the part of the requested filter that the server grants.
#[derive(Clone, Debug)]
pub struct Acknowledged<'a> {
    /// The request that opened the stream.
    pub subscription: Id<'a>,
    /// The granted filter.
    pub granted: Filter,
}

impl<'a> Acknowledged<'a> {
    /// The method.
    pub const METHOD: &'static str = "notifications/subscriptions/acknowledged";

    /// Reads the parameters; `None` without a subscription id.
    pub fn read(params: &'a Json) -> Option<Self> {
        let about = Object::parse(params).ok()?.object("_meta")?;
        let subscription = Id::from_raw(about.get(meta::SUBSCRIPTION_ID)?).ok()?;
        Some(Self { subscription, granted: Filter::read(Some(params)) })
    }
}

/// Method of the notification that one resource has changed.
pub const UPDATED: &str = "notifications/resources/updated";

/// The URI in the parameters of [`UPDATED`].
pub fn updated_uri(params: &Json) -> Option<Cow<'_, str>> {
    Object::parse(params).ok()?.text("uri")
}

/// The notification that one resource has changed.
pub fn updated_notification(uri: &str) -> Vec<u8> {
    envelope::notification(UPDATED, Some(&Patch::new().set_text("uri", uri).to_object()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn a_filter_reads_back_and_has_only_what_it_subscribes_to() {
        let (uris, tasks) = (vec!["a\"b".to_owned()], vec!["job-1".to_owned()]);
        let filter = Filter { tools: true, uris, tasks, ..Filter::default() };
        let params = filter.to_params();
        assert_eq!(
            params.get(),
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a\"b"],"taskIds":["job-1"]}}"#
        );
        assert_eq!(Filter::read(Some(&params)), filter);
        assert_eq!(Filter::default().to_params().get(), r#"{"notifications":{}}"#);
    }

    #[test]
    fn members_of_the_wrong_type_are_ignored() {
        for odd in [
            "[]",
            "{}",
            r#"{"notifications":true}"#,
            r#"{"notifications":{"toolsListChanged":"yes","resourceSubscriptions":"a"}}"#,
            r#"{"notifications":{"toolsListChanged":null,"resourceSubscriptions":[1,null,{}],"taskIds":[7]}}"#,
        ] {
            assert!(Filter::read(Some(&json(odd))).is_empty(), "{odd}");
        }
        assert!(Filter::read(None).is_empty());
    }

    #[test]
    fn an_acknowledgement_has_the_id_of_its_stream() {
        let params = json(
            r#"{"notifications":{"resourceSubscriptions":["a"]},"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#,
        );
        let read = Acknowledged::read(&params).unwrap();
        assert_eq!((read.subscription.as_u64(), read.granted.uris), (Some(7), vec!["a".to_owned()]));
        assert!(Acknowledged::read(&json(r#"{"notifications":{}}"#)).is_none());
    }

    #[test]
    fn an_update_notification_has_the_uri() {
        let bytes = updated_notification("file:///a b");
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.method(), Some(UPDATED));
        assert_eq!(updated_uri(message.params().unwrap()).unwrap(), "file:///a b");
    }
}
