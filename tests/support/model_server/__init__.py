"""A scripted model server on loopback: real agent CLIs talk to it instead of to a model.

    python -m tests.support.model_server --port 0 --log requests.jsonl

It prints `LISTENING http://127.0.0.1:PORT` and speaks the API of each CLI:

    claude      Anthropic Messages      POST /v1/messages
    codex       OpenAI Responses        POST /v1/responses
    opencode    OpenAI Chat Completions POST /v1/chat/completions
    gemini      Gemini                  POST /v1beta/models/MODEL:streamGenerateContent

What it answers stands in the last user text, as directives in capitals at the start of a word:

    SAY:<text to the end of the line>   answer this text
    LONG:<n>                            about n characters of Markdown, ending with END-OF-LONG
    DRIP:<n>:<ms>                       n words, "w1 w2 …", one every ms milliseconds
    THINK:<text>                        a thinking block first
    TOOL:<name>:<JSON>                  use the tool whose name ends so; with its result back,
                                        answer "DONE <result>"
    SHELL:<command to the end of the line>
                                        run it with the agent's own shell, as TOOL does
    READ                                read the first file that its first line names, as TOOL does
    SLEEP:<s>                           wait before anything is sent
    USED:<n>                            cost n tokens (claude, codex)
    IMAGES                              answer with the kinds and sizes of the pictures it came with
    HTTP:<status>[:context|credit|image|limit|model][*n]
                                        fail like the real API; *n only the first n times.
                                        What has a name has the status that each API gives it
    RETRYAFTER:<s>                      such a failure says when to come back
    OVERLOADED[*n]                      begin an answer and fail within its stream
    DROP[:words|:end][*n]               send a part and cut the connection: half the words, all
                                        words, or all but the stream's last event. HTTP applies
                                        to the requests after that
    RECALL                              answer with the user's earlier texts
    TOOLS                               answer with the names of the tools that were offered
    GREPSYS:<text>                      answer whether the system prompt has it
    LEN                                 answer with the length of the last user text
    ECHO                                answer with the first 300 characters of the last user text

Without one it answers `ECHO <the text>`.
What a CLI asks for itself, such as titles and summaries, is answered shortly and obeys nothing.
`GET /bodies` returns the last requests as they came, one a line.
`POST /limit` sets what the model refuses, with the fields of `Limit`.
`POST /charges` says whether each request costs something else, or all cost the same.
`GET /charged` returns what the requests were told that they cost (`Charge`), and the part of it
whose answers were sent to their end.
"""
