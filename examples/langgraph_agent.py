"""A LangGraph agent: a model and its tools, in a graph.

pip install endturn langgraph langchain-openai
OPENAI_API_KEY=… python examples/langgraph_agent.py "What is the weather in Oslo?"
"""

import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from telling import tell

import endturn

endturn.instrument()
tell()


def weather(city: str) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


model = ChatOpenAI(model="gpt-5-mini").bind_tools([weather])


def think(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_node("model", think)
    .add_node("tools", ToolNode([weather]))
    .add_edge(START, "model")
    .add_conditional_edges("model", tools_condition)
    .add_edge("tools", "model")
    .compile()
)


@endturn.observe_turn(agent="langgraph")
def answer(question: str) -> str:
    state = graph.invoke({"messages": [{"role": "user", "content": question}]})
    return state["messages"][-1].content


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Oslo?"))
