from bson.objectid import ObjectId

print("the id of a document:", ObjectId())
