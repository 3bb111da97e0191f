"""LangChain over OpenAI's API: chains, streams, batches and tools."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

from served import CAPITAL, FILE_QUESTION, FILE_TEXT, PARIS, PATIENCE_S, READ_FILE, TOKENS_MAX, URL, Case

TOOL = {"type": "function", "function": READ_FILE}


class LangChain(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.chat = ChatOpenAI(
            base_url=URL + "/v1", api_key="unused", model=cls.model, temperature=0, max_tokens=TOKENS_MAX,
            max_retries=0, timeout=PATIENCE_S,
            # Not asked for by default where the address is not OpenAI's.
            stream_usage=True,
        )

    def test_a_chain(self):
        chain = ChatPromptTemplate([("user", "{question}")]) | self.chat | StrOutputParser()
        self.assertEqual(chain.invoke({"question": CAPITAL}), PARIS)

    def test_a_stream_says_the_same_and_has_its_usage(self):
        pieces = list(self.chat.stream(CAPITAL))
        self.assertGreater(len(pieces), 1)
        whole = self.chat.invoke(CAPITAL)
        streamed = sum(pieces[1:], pieces[0])
        self.assertEqual((streamed.content, whole.content), (PARIS, PARIS))
        self.assertEqual(streamed.usage_metadata["total_tokens"], whole.usage_metadata["total_tokens"])
        self.assertEqual(streamed.response_metadata["finish_reason"], "stop")

    def test_a_batch_says_what_each_says(self):
        questions = [CAPITAL, "Name three fruits."]
        alone = [self.chat.invoke(question).content for question in questions]
        self.assertEqual([answer.content for answer in self.chat.batch(questions)], alone)

    def test_messages_of_all_roles(self):
        told = [SystemMessage("You are a pirate."), HumanMessage("Hello."), AIMessage("Ahoy."), HumanMessage(CAPITAL)]
        alone = self.chat.invoke(CAPITAL).usage_metadata["input_tokens"]
        self.assertGreater(self.chat.invoke(told).usage_metadata["input_tokens"], alone)

    def test_a_tool_is_called_and_answered(self):
        chat = self.chat.bind_tools([TOOL])
        called = chat.invoke(FILE_QUESTION)
        (call,) = called.tool_calls
        self.assertEqual((call["name"], call["args"]), ("read_file", {"path": "notes.txt"}))
        pieces = list(chat.stream(FILE_QUESTION))
        (streamed,) = sum(pieces[1:], pieces[0]).tool_calls
        self.assertEqual(streamed | {"id": None}, call | {"id": None})
        answer = chat.invoke([HumanMessage(FILE_QUESTION), called, ToolMessage(FILE_TEXT, tool_call_id=call["id"])])
        self.assertIn(FILE_TEXT, answer.content)
