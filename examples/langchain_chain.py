# Run: pip install langchain-openai openai && python examples/langchain_chain.py
"""A chain of LangChain: a template of a prompt, the model, and a parser; then the same as a stream."""

import os

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from openai import OpenAI

served = {"base_url": os.environ.get("LLM_URL", "http://127.0.0.1:8000") + "/v1", "api_key": "unused"}
model = OpenAI(**served).models.list().data[0].id
prompt = ChatPromptTemplate([("system", "You answer in one sentence."), ("user", "What is the capital of {country}?")])
chain = prompt | ChatOpenAI(model=model, temperature=0, max_tokens=64, **served) | StrOutputParser()

print(chain.invoke({"country": "France"}))
for text in chain.stream({"country": "Italy"}):
    print(text, end="", flush=True)
print()
