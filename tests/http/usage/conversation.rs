//! Answers of models, written by hand, with a record of what has been told at each byte of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame};
use proptest::prelude::*;

/// Whose answer it is, and in which form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Chat,
    ChatStream,
    /// Each event has the numbers so far.
    ChatStreamCumulative,
    Responses,
    ResponsesStream,
    Messages,
    MessagesStream,
    Gemini,
    GeminiArray,
    GeminiStream,
}

/// What a model says, and what it counts.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) form: Form,
    pub(super) texts: Vec<String>,
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) has_usage: bool,
    pub(super) is_compressed: bool,
    /// After how many of a thousand bytes the body ends, if it is cut off.
    pub(super) cut: Option<usize>,
    /// The lengths of its frames, again and again.
    pub(super) pieces: Vec<usize>,
    pub(super) prompt: u64,
    /// How many tokens of the input were read from a cache, where the service says so.
    pub(super) cached: u32,
    /// The model that the answer names.
    pub(super) model: Option<&'static str>,
}

/// A text with the numbers in it: each with its name, and the length of the text that has it whole; and with the names of models.
#[derive(Default)]
pub(super) struct Told {
    text: String,
    marks: Vec<(usize, &'static str, u64)>,
    models: Vec<(usize, &'static str)>,
}

impl Told {
    fn say(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Writes a member with a number. What comes next is no digit.
    fn tell(&mut self, member: &str, name: &'static str, number: u64) {
        self.say(&format!("\"{member}\": {number}"));
        self.marks.push((self.text.len() + 1, name, number));
    }

    /// Writes a member with the name of a model, if there is one, and a comma.
    fn name(&mut self, member: &str, model: Option<&'static str>) {
        if let Some(model) = model {
            self.say(&format!("\"{member}\": \"{model}\""));
            self.models.push((self.text.len(), model));
            self.say(",");
        }
    }

    /// Returns the last model in the first bytes.
    pub(super) fn last_model(&self, bytes: usize) -> Option<&'static str> {
        let mut before = self.models.iter().filter(|(end, _)| *end <= bytes);
        before.next_back().map(|(_, model)| *model)
    }

    /// Returns the last number of this name in the first bytes.
    pub(super) fn last(&self, name: &str, bytes: usize) -> Option<u64> {
        let before = self.marks.iter().filter(|(end, ..)| *end <= bytes);
        let mut of_it = before.filter(|(_, its, _)| *its == name);
        of_it.next_back().map(|(.., number)| *number)
    }

    /// Returns what the first bytes say that was used.
    fn used(&self, bytes: usize) -> Option<u64> {
        let last = |name| self.last(name, bytes);
        let parts = ["input", "cached", "written", "output", "thoughts"].map(last);
        let sum = parts.iter().flatten().sum();
        let is_any = parts.iter().any(Option::is_some);
        last("total").or(is_any.then_some(sum))
    }
}

impl Conversation {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        use Form::{
            Chat, ChatStream, ChatStreamCumulative, Gemini, GeminiArray, GeminiStream, Messages,
            MessagesStream, Responses, ResponsesStream,
        };
        let forms = [
            Chat,
            ChatStream,
            ChatStreamCumulative,
            Responses,
            ResponsesStream,
            Messages,
            MessagesStream,
            Gemini,
            GeminiArray,
            GeminiStream,
        ];
        let text = prop_oneof![
            r#"[a-zA-Z "\\\n{}\[\]:,0-9]{0,40}"#,
            Just("\"usage\": {\"total_tokens\": 7}".to_owned()),
            Just("\n\ndata: {\"usage\": {\"output_tokens\": 7}}\n\n".to_owned()),
        ];
        (
            prop::sample::select(forms.to_vec()),
            prop::collection::vec(text, 0..6),
            (0_u32..100_000, 0_u32..100_000),
            prop::bool::weighted(0.8),
            any::<bool>(),
            prop::option::weighted(0.4, 0_usize..=1_000),
            prop::collection::vec(1_usize..60, 1..4),
            (0_u64..10_000, 0_u32..100_000),
            prop::option::weighted(
                0.8,
                prop::sample::select(vec!["large", "small-2024-08-06", "unpriced"]),
            ),
        )
            .prop_map(
                |(
                    form,
                    texts,
                    (input, output),
                    has_usage,
                    is_compressed,
                    cut,
                    pieces,
                    (prompt, cached),
                    model,
                )| {
                    Self {
                        form,
                        texts,
                        input,
                        output,
                        has_usage,
                        is_compressed,
                        cut,
                        pieces,
                        prompt,
                        cached,
                        model,
                    }
                },
            )
    }

    pub(super) fn content_type(&self) -> &'static str {
        match self.form {
            Form::Chat | Form::Responses | Form::Messages => "application/json",
            Form::Gemini | Form::GeminiArray => "application/json; charset=UTF-8",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// Returns the text of the whole answer.
    pub(super) fn told(&self) -> Told {
        let mut told = Told::default();
        let (input, output) = (u64::from(self.input), u64::from(self.output));
        match self.form {
            Form::Chat => self.chat(&mut told, input, output),
            Form::ChatStream | Form::ChatStreamCumulative => {
                self.chat_stream(&mut told, input, output);
            }
            Form::Responses => {
                told.say("{");
                told.name("model", self.model);
                told.say(&format!("\"output\":{:?},", self.texts.concat()));
                if self.has_usage {
                    self.usage(
                        &mut told,
                        ["input_tokens", "output_tokens"],
                        [input, output],
                    );
                    told.say(",");
                }
                told.say("\"status\":\"completed\"}");
            }
            Form::ResponsesStream => {
                for text in &self.texts {
                    told.say(&format!(
                        "event: response.output_text.delta\r\ndata: {{\"delta\":{text:?}}}\r\n\r\n"
                    ));
                }
                told.say("event: response.completed\r\ndata: {\"type\":\"response.completed\",\r\ndata: \"response\":{");
                told.name("model", self.model);
                if self.has_usage {
                    self.usage(
                        &mut told,
                        ["input_tokens", "output_tokens"],
                        [input, output],
                    );
                    told.say(",");
                }
                told.say("\"id\":\"r\"}}\r\n\r\n");
            }
            Form::Messages => {
                told.say("{");
                told.name("model", self.model);
                told.say(&format!(
                    "\"content\":[{{\"text\":{:?}}}],",
                    self.texts.concat()
                ));
                if self.has_usage {
                    told.say("\"usage\":{");
                    told.tell("input_tokens", "input", input);
                    told.say(",");
                    told.tell("cache_read_input_tokens", "cached", self.cached.into());
                    told.say(",");
                    told.tell("cache_creation_input_tokens", "written", 7);
                    told.say(",");
                    told.tell("output_tokens", "output", output);
                    told.say("},");
                }
                told.say("\"role\":\"assistant\"}\n");
            }
            Form::MessagesStream => self.messages_stream(&mut told, input, output),
            Form::Gemini => self.gemini(&mut told, input, output),
            Form::GeminiArray => {
                told.say("[");
                self.gemini(&mut told, input, 1);
                told.say(",\r\n");
                self.gemini(&mut told, input, output);
                told.say("\n]\n");
            }
            Form::GeminiStream => {
                for output in [1, output] {
                    told.say("data: ");
                    self.gemini(&mut told, input, output);
                    told.say("\r\n\r\n");
                }
            }
        }
        told
    }

    fn chat(&self, told: &mut Told, input: u64, output: u64) {
        told.say("{");
        told.name("model", self.model);
        told.say(&format!(
            "\"choices\":[{{\"message\":{:?}}}],",
            self.texts.concat()
        ));
        if self.has_usage {
            self.usage(
                told,
                ["prompt_tokens", "completion_tokens"],
                [input, output],
            );
            told.say(",");
        }
        told.say("\"id\":1}");
    }

    fn chat_stream(&self, told: &mut Told, input: u64, output: u64) {
        for (place, text) in (1..).zip(&self.texts) {
            told.say("data: {");
            told.name("model", self.model);
            told.say(&format!(
                "\"choices\":[{{\"delta\":{{\"content\":{text:?}}}}}],"
            ));
            if matches!(self.form, Form::ChatStreamCumulative) && self.has_usage {
                told.say("\"usage\": {");
                told.tell("prompt_tokens", "input", input);
                told.say(", ");
                told.tell("completion_tokens", "output", place);
                told.say("}}\n\n");
            } else {
                told.say("\"usage\":null}\n\n");
            }
        }
        if self.has_usage {
            told.say("data: {\"choices\":[],");
            self.usage(
                told,
                ["prompt_tokens", "completion_tokens"],
                [input, output],
            );
            told.say("}\n\n");
        }
        told.say("data: [DONE]\n\n");
    }

    fn messages_stream(&self, told: &mut Told, input: u64, output: u64) {
        told.say("event: message_start\ndata: {\"message\":{");
        told.name("model", self.model);
        told.say("\"usage\":{");
        if self.has_usage {
            told.tell("input_tokens", "input", input);
            told.say(",");
            told.tell("output_tokens", "output", 1);
        }
        told.say("}}}\n\n");
        for text in &self.texts {
            told.say(&format!(
                ": ping\nevent: content_block_delta\ndata: {{\"delta\":{{\"text\":{text:?}}}}}\n\n"
            ));
        }
        if self.has_usage {
            told.say("event: message_delta\ndata: {\"usage\":{");
            told.tell("output_tokens", "output", output);
            told.say("}}\n\n");
        }
        told.say("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    fn gemini(&self, told: &mut Told, input: u64, output: u64) {
        told.say(&format!(
            "{{\"candidates\":[{{\"text\":{:?}}}],",
            self.texts.concat()
        ));
        if self.has_usage {
            told.say("\"usageMetadata\":{");
            told.tell("promptTokenCount", "input", input);
            told.say(",");
            told.tell("cachedContentTokenCount", "of input", self.cached.into());
            told.say(",");
            told.tell("candidatesTokenCount", "output", output);
            told.say(",");
            told.tell("thoughtsTokenCount", "thoughts", 3);
            told.say(",");
            told.tell("totalTokenCount", "total", input + output + 3);
            told.say("},");
        }
        told.name("modelVersion", self.model);
        told.say("\"role\":\"model\"}");
    }

    fn usage(&self, told: &mut Told, [first, second]: [&str; 2], [input, output]: [u64; 2]) {
        told.say("\"usage\": {");
        told.tell(first, "input", input);
        told.say(&format!(
            ",\"details\":{{\"total_tokens\":99}},\"{first}_details\":{{"
        ));
        told.tell("cached_tokens", "of input", self.cached.into());
        told.say("},");
        told.tell(second, "output", output);
        told.say(", ");
        told.tell("total_tokens", "total", input + output);
        told.say(" }");
    }

    /// Returns the bytes that are sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.told().text.into_bytes();
        if self.is_compressed {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // As a server does that compresses a stream: each part can be read when it comes.
            for part in bytes.chunks(40) {
                encoder.write_all(part).unwrap();
                encoder.flush().unwrap();
            }
            bytes = encoder.finish().unwrap();
        }
        if let Some(cut) = self.cut {
            bytes.truncate(bytes.len() * cut / 1_000);
        }
        bytes
    }

    /// Returns how many bytes of the text can be read from those that are sent.
    pub(super) fn read(&self) -> usize {
        let bytes = self.bytes();
        if self.is_compressed {
            inflated(&bytes)
        } else {
            bytes.len()
        }
    }

    /// Returns what the bytes that are sent say that was used.
    fn used(&self) -> Option<u64> {
        self.told().used(self.read())
    }

    pub(super) fn tells_its_usage(&self) -> bool {
        self.used().is_some()
    }

    /// Returns what is to be charged.
    pub(super) fn cost(&self) -> u32 {
        let guess = (self.prompt + self.bytes().len() as u64).div_ceil(4).max(1);
        u32::try_from(self.used().unwrap_or(guess)).unwrap()
    }

    pub(super) fn body(&self) -> Frames {
        let mut bytes = Bytes::from(self.bytes());
        let mut frames = VecDeque::new();
        for length in self.pieces.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            frames.push_back(bytes.split_to((*length).min(bytes.len())));
        }
        Frames {
            frames,
            is_cut: self.cut.is_some(),
        }
    }
}

/// Returns how many bytes of the text are in the first bytes of a compressed one.
fn inflated(bytes: &[u8]) -> usize {
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    let _ = decoder.write_all(bytes);
    let _ = decoder.flush();
    decoder.get_ref().len()
}

/// A body that breaks off after its last frame, or ends there.
pub(super) struct Frames {
    frames: VecDeque<Bytes>,
    is_cut: bool,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(Frame::data(frame)))),
            None if self.is_cut => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}
