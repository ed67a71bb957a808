"""A server of questions: rows of a batch's list in, lines of its results out, models cached between them.

:class:`.server.QuestionServer` answers questions in one thread. :class:`.asgi_server.AsgiServer` (uvicorn) and
:class:`.web_app.WebApp` (Starlette) take the requests of clients in another thread into a
:class:`.service_queue.ServiceQueue`. The files of a :class:`.server_folder.ServerFolder` have the address and the
token, by which :mod:`.warm_client` asks the server to run a command.
"""
